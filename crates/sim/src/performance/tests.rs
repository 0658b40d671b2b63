//! Tests of the whole simulation.
