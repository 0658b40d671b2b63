"""Checkpoints."""

from __future__ import annotations
