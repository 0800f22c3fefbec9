# Reads `go test -v`: prints a line for each package, all that a failing test
# said, and at the end a line for each reason why tests were skipped, and the
# totals. Ends with status 1 when something failed.

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
		sub(/^[a-zA-Z0-9_]+\.go:[0-9]+: /, "", reason)
		skip(test, reason)
	} else if (result == "FAIL:") {
		printf "%s\n%s", $0, said[test]
		failed = 1
	}
	next
}
# What the go command downloads meanwhile is neither a test's nor trouble.
/^go: downloading / {
	print
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

# skip counts a test that was skipped with those of the same reason, whose details follow a colon.
function skip(test, reason) {
	sub(/: .*/, "", reason)
	if (!(reason in skipped))
		reasons[++kinds] = reason
	skipped[reason]++
	if (skipped[reason] <= 3)
		names[reason] = names[reason] (skipped[reason] > 1 ? ", " : "") test
	else if (skipped[reason] == 4)
		names[reason] = names[reason] ", ..."
}

END {
	if (kinds > 0)
		printf "\nskipped, and why:\n"
	for (i = 1; i <= kinds; i++)
		printf "  %d: %s (%s)\n", skipped[reasons[i]], reasons[i], names[reasons[i]]
	printf "\n%s: %d passed, %d failed, %d skipped\n", failed ? "FAILED" : "OK",
		count["PASS:"], count["FAIL:"], count["SKIP:"]
	exit failed
}
