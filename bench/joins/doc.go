// Command joins measures how many stacks that the copy cuts off are completed with what was seen of
// them before and after, and how many of these wrongly. 'make bench-joins' writes bench/JOINS.md.
// Given recordings, it judges these.
//
// With -live it records a command whose stacks it cuts meanwhile, so that what is read of them from the
// process is judged, too:
//
//	go run ./bench/joins -live 16384 -- clang++ -O2 -c work.cc
//
// With -copies it records programs with copies of several sizes, and writes what each completes and costs:
// bench/COPIES.md.
package main
