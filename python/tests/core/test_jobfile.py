"""Files `job.toml`, and errors of those that are wrong."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import libra_ps
import pytest
from libra_ps import jobfile, process, ray
from libra_ps.jobfile import JobFile

TEXT = """seed = 7  # of all
hidden = [400,
  400]

[worker]
data = "{member}"

[ray]
worker = { CPU = 2 }
timeout = 5
"""


def job_file(folder: Path, text: str) -> JobFile:
    path = folder / "job.toml"
    path.write_text(text)
    return JobFile(path)


def test_sections_are_the_lines_of_their_roles(tmp_path: Path) -> None:
    file = job_file(tmp_path, TEXT)
    assert file.section("controller") == "seed = 7  # of all\nhidden = [400,\n  400]\n"
    # Its lines have the numbers that they have in the file.
    assert file.section("worker") == "\n" * 5 + 'data = "{member}"\n'
    assert file.section("server") == ""
    assert file.options("controller") == {"seed": 7, "hidden": [400, 400]}
    assert (file.settings.worker, file.settings.timeout, file.settings.server) == ({"CPU": 2}, 5, {"CPU": 1})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("seed = \n", "job.toml: .*line 1"),
        ("[workers]\ncpu = 1\n", r"job.toml, line 1: there is no table \[workers\]; there are server, switch, worker, ray"),
        ("seed = 1\n[bogus]\n", r"job.toml, line 2: there is no table \[bogus\]"),
        ("server = 3\n", r"job.toml, line 1: the options of server must be below one table \[server\]"),
        ("seed = 1\nserver = { bogus = 1 }\n", "job.toml, line 2: the options of server must be below"),
        ("seed = 1\nworker.bogus = 1\n", "job.toml, line 2: the options of worker must be below"),
        ("[[worker]]\nbogus = 1\n", "job.toml, line 1: the options of worker must be below"),
        ("ray = 1\n", "job.toml, line 1: the options of ray must be below"),
        ("seed = 1\n[ray]\nports = 5\n", r"job.toml, line 3: \[ray\] ports = 5 must be a text"),
        ('[ray]\nports = "7799-7700"\n', 'job.toml, line 2: .* must be like "7700-7799"'),
        ('[ray]\nports = "99990-99999"\n', 'job.toml, line 2: .* must be like "7700-7799"'),
        ('[ray]\nworker = { CPU = "two" }\n', "job.toml, line 2: .* must be amounts of resources"),
        ("[ray]\nswitch = { CPU = -1 }\n", "job.toml, line 2: .* must be amounts of resources"),
        ('[ray]\nstrategy = "BOGUS"\n', "job.toml, line 2: .* must be one of SPREAD, PACK"),
        ("[ray]\nstandby = -1\n", "job.toml, line 2: .* must be a number, 0 or more"),
        ("[ray]\nstandby = 1.5\n", "job.toml, line 2: .* must be a number, 0 or more"),
        ("[ray]\ntimeout = true\n", "job.toml, line 2: .* must be a number of seconds"),
        ('[ray]\nports = "5"\n', 'job.toml, line 2: .* must be like "7700-7799"'),
        ("port = 1\n[ray]\nport = 5\n", r"job.toml, line 3: \[ray\] has no key `port`; it has server"),
        ('listen = "10.0.0.1:7700"\n', "job.toml, line 1: `listen` is not to be set"),
        ('[switch]\n\ncontroller = "a:1"\n', "job.toml, line 3: `controller` is not to be set"),
    ],
)
def test_files_that_are_wrong_are_refused_with_the_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(libra_ps.JobFailed, match=complaint):
        job_file(tmp_path, text)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_bytes(b"seed = 1 # \xff\n")
    with pytest.raises(libra_ps.JobFailed, match="job.toml: it is no text in UTF-8"):
        JobFile(tmp_path / "job.toml")


def test_reasons_of_a_process_are_its_last_line_or_the_error_of_its_options() -> None:
    usage = ["error: invalid value 'fast' for '--mode'", "  [possible values: async, sync]", "", "For more information, try '--help'."]
    assert process._reason(usage) == "invalid value 'fast' for '--mode' [possible values: async, sync]"
    assert process._reason(["training", "libra: no data", ""]) == "no data"
    assert process._reason([]) == ""


def test_a_section_that_cannot_be_taken_out_is_refused(tmp_path: Path) -> None:
    file = job_file(tmp_path, "hidden = [\n  400,\n[worker]\n".replace("[worker]", "]\nlayers = [[1],\n[2]]"))
    with pytest.raises(libra_ps.JobFailed, match="the options of controller must be one on a line"):
        file.section("controller")


def test_sizes_are_numbers_and_ranges_of_workers(tmp_path: Path) -> None:
    file = job_file(tmp_path, 'servers = 3\nworkers = "2..4"\n')
    assert (file.size("servers"), file.size("switches"), file.size("workers")) == ((3, 3), (1, 1), (2, 4))
    assert jobfile.size("workers", "4") == jobfile.size("workers", 4) == (4, 4)


@pytest.mark.parametrize("given", ['"4..2"', '"2.."', "true", "2.5", "-1"])
def test_sizes_that_are_none_are_refused_with_the_line(tmp_path: Path, given: str) -> None:
    with pytest.raises(libra_ps.JobFailed, match="job.toml, line 2: workers = .* must be a number, or MIN..MAX"):
        job_file(tmp_path, f"seed = 1\nworkers = {given}\n").size("workers")
    with pytest.raises(libra_ps.JobFailed, match="job.toml, line 1: servers = '2..4' must be a number, which is fixed"):
        job_file(tmp_path, 'servers = "2..4"\n').size("servers")


def test_a_run_has_a_name_for_its_directories(tmp_path: Path) -> None:
    text = 'epochs = 1\n[server]\nstate-dir = "/d/{job}/{member}"\n'
    assert job_file(tmp_path, text).of_run("run-7", resumes=True)["server"] == '\n\nstate-dir = "/d/run-7/{member}"\n'
    with pytest.raises(libra_ps.JobFailed, match="job.toml, line 3: a job that resumes needs new directories"):
        job_file(tmp_path, text.replace("{job}/", "")).of_run("run-7", resumes=True)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(libra_ps.JobFailed, match="nowhere.toml: No such file"):
        JobFile("nowhere.toml")


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_ray_that_is_absent_is_an_error_that_names_the_package(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(libra_ps.JobFailed, match=r"Ray cannot be imported .*: pip install libra-ps\[ray\]"):
        ray.run(tmp_path / "job.toml")
    assert ray.main(["run", "job.toml"]) == 1
    assert "pip install libra-ps[ray]" in capfd.readouterr().err
