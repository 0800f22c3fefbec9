# Makes a table of what `make fuzz` prints: how many inputs each target got, and whether one failed.
/^== / { target = $3; package = $2; sub(/^\.\//, "", package); inputs = 0; failed = "" }
/^fuzz: elapsed:/ {
	for (i = 1; i <= NF; i++)
		if ($i == "execs:") inputs = $(i + 1)
}
/^--- FAIL|^FAIL/ { failed = "yes" }
/^(ok|FAIL)[ \t]/ {
	if (target != "") {
		if (failed == "")
			failed = inputs > 0 ? "none" : "not begun: its corpus took all the time"
		printf "| `%s` | `%s` | %s | %s |\n", package, target, inputs, failed
		total += inputs
		target = ""
	}
}
END { printf "| all | | %d | |\n", total }
