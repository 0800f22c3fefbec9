package counts

import (
	"fmt"
	"io"

	"unspool/capture/output/human"
	"unspool/capture/symbols/runtimes"
)

// GeneratedStats is what a summary says of generated code.
type GeneratedStats struct {
	Nameless, Broken []runtimes.Process
	Cut              []string // maps that are not kept as a whole
}

// leastTold is the share of the user stacks below which generated code is not worth a line.
const leastTold = 0.01

// write writes it in words, given the number of user stacks.
func (g *GeneratedStats) write(w io.Writer, user uint64) {
	if g == nil {
		return
	}
	least := uint64(leastTold * float64(user))
	for _, of := range runtimes.Groups(g.Nameless, least) {
		fmt.Fprintf(w, "%s of the user stacks go through code that %s generated and has not named: %s\n",
			human.Percent(of.Samples, user), printed(of.Who()), of.Advice())
	}
	for _, of := range runtimes.Groups(g.Broken, least) {
		fmt.Fprintf(w, "%s of the user stacks end at code that %s generated without frame pointers, or are wrong "+
			"behind it: %s\n", human.Percent(of.Samples, user), printed(of.Who()), of.Runtime.Frames())
	}
	for _, text := range g.Cut {
		fmt.Fprintln(w, text)
	}
}
