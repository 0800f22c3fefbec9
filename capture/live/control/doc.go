// Package control takes commands for a running recording from a FIFO, as perf record --control does
// (tools/perf/Documentation/perf-record.txt): one a line. Each command that was followed is acknowledged in
// a second FIFO with the line "ack".
package control
