// Package pykerneltest gives tests real python kernels in a temporary home: the real engine, SQLite, the real supervisor and
// /usr/bin/python3, with one kind of neuron that owns kernels and takes their outcomes.
//
// It is for tests only and may import what it needs.
package pykerneltest
