//! Answers of servers, as users read them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use libra_objects::{Created, Environment, Fault, Kind, Objects};

/// Objects of a server that gives each request the answer that this chooses, by its method and headers.
fn objects(answer: fn(&str) -> (&'static str, &'static str)) -> Objects {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().for_each(|stream| serve(stream.unwrap(), answer)));
    let settings = [
        ("AWS_ENDPOINT", format!("http://{address}")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", "a".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "geheim".to_owned()),
    ];
    let environment: Environment =
        settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Objects::open(&Kind::S3("models".to_owned()), &environment, Some(0)).unwrap()
}

fn serve(mut stream: TcpStream, answer: fn(&str) -> (&'static str, &'static str)) {
    let (mut request, mut byte) = (String::new(), [0]);
    while !request.ends_with("\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
        request.push(byte[0].into());
    }
    let request = request.to_ascii_lowercase();
    let length = request.split_once("content-length: ").and_then(|(_, rest)| rest.lines().next());
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    stream.read_exact(&mut vec![0; length]).unwrap();
    let (status, body) = answer(&request);
    let length = body.len();
    let text =
        format!("HTTP/1.1 {status}\r\nETag: \"1\"\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let body = if request.starts_with("head ") { "" } else { body };
    // A client that has what it wants may be gone.
    let _ = stream.write_all(format!("{text}{body}").as_bytes());
}

fn put(answer: fn(&str) -> (&'static str, &'static str)) -> String {
    objects(answer).put("run/owner.json", "1".into()).unwrap_err().to_string()
}

#[test]
fn a_clock_that_is_wrong_is_named() {
    let refused = put(|_| {
        let body = "<?xml version=\"1.0\"?>\n<Error><Code>RequestTimeTooSkewed</Code>\n<Message>The difference between \
                    the request time and the current time is too large.</Message><RequestId>7</RequestId></Error>";
        ("403 Forbidden", body)
    });
    assert!(refused.starts_with("the clock of this machine is not that of the server"), "{refused}");
    let words =
        "RequestTimeTooSkewed: The difference between the request time and the current time is too large.";
    assert!(refused.ends_with(words), "{refused}");
    let refused = put(|_| {
        (
            "403 Forbidden",
            "<Error><AuthenticationErrorDetail>Request date header too old: 'Thu'</AuthenticationErrorDetail></Error>",
        )
    });
    assert!(refused.starts_with("the clock of this machine"), "{refused}");
}

#[test]
fn refusals_are_one_line_without_secrets() {
    let refused = put(|_| {
        let body = "<?xml version=\"1.0\"?>\n<Error>\n  <Code>AccessDenied</Code>\n  <Message>You may read.\nTime: now\
                    </Message>\n</Error>";
        ("403 Forbidden", body)
    });
    assert!(refused.starts_with("the credentials do not allow it: "), "{refused}");
    assert!(refused.ends_with("403 Forbidden: AccessDenied: You may read. Time: now"), "{refused}");
    assert!(!refused.contains(['\n', '<']) && !refused.contains("geheim"), "{refused}");
}

#[test]
fn a_server_without_conditional_put_takes_plain_ones() {
    // It has the object only after a put without condition.
    let objects = objects(|request| match request.split(' ').next().unwrap() {
        "put" if request.contains("if-none-match: *") => {
            ("501 Not Implemented", "<Error><Code>NotImplemented</Code></Error>")
        }
        "put" => ("200 OK", ""),
        _ => ("404 Not Found", ""),
    });
    assert_eq!(objects.create("run/owner.json", "1".into()).unwrap(), Created::Unconditional);
    let counts = objects.counts();
    assert_eq!((counts.requests, counts.retries), (3, 0), "one that is refused, a look, and a put");
}

/// A client of a store with these variables alone.
fn open(kind: Kind, variables: &[(&str, &str)]) -> Result<Objects, Fault> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Objects::open(&kind, &variables.collect(), None)
}

#[test]
fn an_endpoint_that_is_no_url_is_refused() {
    let s3 = || Kind::S3("models".to_owned());
    for (variable, value, shown) in [
        ("AWS_ENDPOINT", "127.0.0.1:9000", "127.0.0.1:9000"),
        ("AWS_ENDPOINT_URL", "localhost:9000", "localhost:9000"),
        ("AWS_ENDPOINT_URL_S3", "http://", "http://"),
        ("AWS_ENDPOINT", "ftp://u:geheim@host", "ftp://host"),
    ] {
        let refused = open(s3(), &[(variable, value)]).unwrap_err().to_string();
        assert_eq!(refused, format!("{variable} = {shown:?}: expected a URL as http://HOST:PORT"));
        // Those of another kind are not looked at.
        assert!(open(Kind::Google("models".to_owned()), &[(variable, value)]).is_ok());
    }
    for value in ["http://127.0.0.1:9000", "https://host", ""] {
        assert!(open(s3(), &[("AWS_ENDPOINT", value)]).is_ok(), "{value}");
    }
    assert!(open(s3(), &[("AWS_ENDPOINT", "http://h"), ("AWS_USE_FIPS_ENDPOINT", "true")]).is_ok());
}

#[test]
fn plain_http_that_is_not_allowed_is_not_tried_again() {
    let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "geheim")];
    let variables = [&keys[..], &[("AWS_ENDPOINT", "http://127.0.0.1:9")]].concat();
    let objects = open(Kind::S3("models".to_owned()), &variables).unwrap();
    let refused = objects.read("run/owner.json").unwrap_err().to_string();
    assert_eq!(refused, "plain HTTP is not allowed: set AWS_ALLOW_HTTP=true");
    assert_eq!(objects.counts().retries, 0);
    let azure = [("AZURE_STORAGE_ACCOUNT_NAME", "a"), ("AZURE_STORAGE_ACCOUNT_KEY", "Z2VoZWlt")];
    let variables = [&azure[..], &[("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:9/a")]].concat();
    let refused = open(Kind::Azure("models".to_owned()), &variables)
        .and_then(|objects| objects.read("run/owner.json"))
        .unwrap_err()
        .to_string();
    assert_eq!(refused, "plain HTTP is not allowed: set AZURE_ALLOW_HTTP=true");
}

#[test]
fn variables_of_the_kind_are_named_without_credentials() {
    let refused = open(Kind::Azure("models".to_owned()), &[]).unwrap_err().to_string();
    assert_eq!(refused, "no account: set AZURE_STORAGE_ACCOUNT_NAME in the environment");
    let refused = open(Kind::S3("models".to_owned()), &[("AWS_ACCESS_KEY_ID", "a")]).unwrap_err();
    assert!(refused.to_string().starts_with("no credentials: set AWS_ACCESS_KEY_ID and "), "{refused}");
}
