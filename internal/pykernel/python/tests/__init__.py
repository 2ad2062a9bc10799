"""Tests of the python kernel against real kernel processes over their real sockets."""
