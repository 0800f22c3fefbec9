// Command faults plants faults in the product, one at a time, and finds out which of them the tests notice.
//
//	go run ./bench/faults choose -n 60 -seed 1   # writes bench/faults/faults.txt
//	go run ./bench/faults run -o bench/faults/old.txt
//	go run ./bench/faults table                  # writes bench/FAULTS.md
//
// A fault is a line with a mistake: another comparison, a condition turned around, a number that is one too
// large, a sum for a difference, a call left out, two arguments exchanged, a constant result. choose draws
// them at random from the syntax trees of all packages but small ones, so that the kinds take turns and no
// function has two, and keeps those that compile and whose lines tests reach. The list names the function and
// the text of the line, so a fault is still found when the code has moved. Where the code has changed, edit
// the list, or the fault is reported as gone.
//
// Which tests reach a line is counted, not guessed: a copy of the tree counts when the statement around each
// fault begins, and each test is run alone. The counters are in a mapped file, so that those of the program
// count, too, which the tests run, also after it has given up its rights or is killed.
//
// run plants each fault in a copy of a tree (-tree), and runs the tests that reach it until one fails: those
// of the package first, then of the packages that import it. A test that does not end in time has noticed the
// fault, tests that do not compile have not. Tests that depend on what else the machine does (-live) count if
// they fail again with the fault and pass without it. The verdicts are appended to a file as they come, and a
// run goes on where the one before was interrupted. A fault for which the time (-budget) was over is tried
// again by a run with more.
//
// -run and -skip choose tests by their names, as they do for go test:
//
//	go run ./bench/faults run -skip '^TestMachine' -o bench/faults/new.txt
//	UNSPOOL_LANE=machine go run ./bench/faults run -run '^TestMachine' -o bench/faults/machine.txt
package main
