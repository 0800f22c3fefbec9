// Package workloads records real programs with raw stacks, for the tables in bench.
package workloads
