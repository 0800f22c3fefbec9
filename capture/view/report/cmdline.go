package report

import (
	"math"
	"path"
	"strings"

	"unspool/capture/output/human"
)

// leastCommandLine is the room in columns in which a command line is shown.
const leastCommandLine = 12

// commandLines shortens command lines. Those of one program are often long and nearly the same: then the words that all
// of them have say nothing.
type commandLines struct {
	lines map[string]int    // by program
	words map[[2]string]int // by program and word, the lines that have it
}

func newCommandLines(groups []group) *commandLines {
	c := &commandLines{make(map[string]int), make(map[[2]string]int)}
	for i := range groups {
		program, arguments := cutProgram(groups[i].cmdline)
		c.lines[program]++
		seen := make(map[string]bool)
		for _, word := range strings.Fields(arguments) {
			if !seen[word] {
				seen[word] = true
				c.words[[2]string{program, word}]++
			}
		}
	}
	return c
}

// cutProgram divides a command line into the name of its program, without its path, and its arguments.
func cutProgram(line string) (program, arguments string) {
	program, arguments, _ = strings.Cut(line, " ")
	if strings.HasPrefix(program, "/") {
		program = path.Base(program)
	}
	return program, arguments
}

// short is a command line in so many columns.
func (c *commandLines) short(line string, columns int) string {
	program, arguments := cutProgram(line)
	whole := strings.TrimRight(program+" "+arguments, " ")
	if human.Columns(whole) > columns && c.lines[program] > 1 {
		words := []string{program}
		for _, word := range strings.Fields(arguments) {
			switch {
			case c.words[[2]string{program, word}] < c.lines[program]:
				words = append(words, word)
			case words[len(words)-1] != "…":
				words = append(words, "…")
			}
		}
		whole = strings.Join(words, " ")
	}
	return human.Shorten(human.Clean(whole), columns)
}

// groupName is the name of a group, and behind it the command line of a process.
func (out *printer) groupName(g *group, c *commandLines, columns int) string {
	name := out.cut(human.Clean(g.name), columns)
	room := columns - human.Columns(name) - 2
	if out.o.whole {
		room = math.MaxInt
	}
	if g.cmdline == "" || room < leastCommandLine {
		return name
	}
	return name + "  " + out.dim(c.short(g.cmdline, room))
}
