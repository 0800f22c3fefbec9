# Reads `go test -v`: prints a line for each package, all that a failing test
# said, and at the end what was skipped, with the reason, and the totals. Ends
# with status 1 when something failed.

# Since Go 1.20 every change of the test that speaks is announced.
/^=== (RUN|CONT|NAME|PAUSE) / {
	test = $3
	next
}
/^[ \t]*--- (PASS|FAIL|SKIP): / {
	result = $2
	test = $3
	count[result]++
	if (result == "SKIP:") {
		reason = said[test]
		sub(/^[ \t]*/, "", reason)
		sub(/\n.*/, "", reason)
		skipped[++skips] = test ": " reason
	} else if (result == "FAIL:") {
		printf "%s\n%s", $0, said[test]
		failed = 1
	}
	next
}
# The package's last line, or what the go command has to say.
/^(ok  |FAIL|\?   |panic: |# )/ || /\[(build|setup) failed\]/ || / \[no test files\]$/ {
	if ($0 ~ /^(FAIL|panic: )/)
		failed = 1
	if ($0 !~ /no test files/ && $0 != "FAIL")
		print
	if ($1 == "ok" || ($1 == "FAIL" && NF > 1))
		split("", said)
	test = ""
	trouble = ($0 ~ /^(panic: |# )/)
	next
}
# What a package says after its tests may be why it fails.
/^PASS$/ {
	test = ""
	next
}
/^coverage: / {
	next
}
# Stack dumps, the race detector and compilers speak outside of tests.
test == "" || trouble || /^(fatal error: |WARNING: DATA RACE)/ {
	trouble = 1
	print
	next
}
{
	said[test] = said[test] $0 "\n"
}

END {
	if (skips > 0)
		printf "\nskipped %d:\n", skips
	for (i = 1; i <= skips; i++)
		print "  " skipped[i]
	printf "\n%s: %d passed, %d failed, %d skipped\n", failed ? "FAILED" : "OK",
		count["PASS:"], count["FAIL:"], count["SKIP:"]
	exit failed
}
