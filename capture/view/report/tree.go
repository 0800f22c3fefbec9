package report

import (
	"fmt"
	"unicode/utf8"

	"unspool/capture/output/human"
	"unspool/capture/profile"
)

// kernelOnly is shown for samples that have no frame to show.
const kernelOnly = "(in the kernel only)"

// branch is a node to print: before is the text to the left of its name, below that to the left of the lines
// under it.
type branch struct {
	node          int32
	before, below string
	image         int32 // of the frame above it
	rest          int   // if not 0, the branch is not the node but so many of its children that are not shown
}

// grow calls show for each branch of a tree. kids are the children of a node that are shown, and how many
// others there are if these are worth a line. If a function has one child to show, the child is printed under
// it without indentation; if it has several, each begins a branch.
func (out *printer) grow(v *view, kids func(node int32) (shown []int32, others int), show func(b *branch)) {
	var stack []branch
	push := func(b *branch) {
		shown, others := kids(b.node)
		if len(shown) == 1 && others == 0 {
			stack = append(stack, branch{node: shown[0], before: b.below, below: b.below, image: b.image})
			return
		}
		if others > 0 {
			stack = append(stack, branch{node: b.node, before: b.below + "└─ ", rest: others})
		}
		for i := len(shown) - 1; i >= 0; i-- {
			next := branch{node: shown[i], before: b.below + "├─ ", below: b.below + "│  ", image: b.image}
			if i == len(shown)-1 && others == 0 {
				next.before, next.below = b.below+"└─ ", b.below+"   "
			}
			stack = append(stack, next)
		}
	}
	push(&branch{image: -1})
	for len(stack) > 0 {
		b := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if show(&b); b.rest == 0 {
			b.image = v.frame(b.node).Image
			push(&b)
		}
	}
}

// tree prints the tree of calls.
func (out *printer) tree(v *view) {
	out.line("")
	limit := ""
	if out.o.PercentLimit > 0 {
		limit = fmt.Sprintf(" (from %.3g%% up)", out.o.PercentLimit)
	}
	out.line(out.bold(fmt.Sprintf("%6s  %6s  %s", "total", "self", "call tree"+limit)))
	if v.hidden > 0 {
		out.line(fmt.Sprintf("%s  %s  %s", out.share(v, v.hidden), out.share(v, v.hidden), out.dim(kernelOnly)))
	}
	childs := v.children(out.o.PercentLimit)
	// below are the children that are below the limit, and their samples.
	below := func(node int32) (shown []int32, others int, samples uint64) {
		shown = childs[node]
		for n := len(shown); n > 0 && v.percent(v.total[shown[n-1]]) < out.o.PercentLimit; n-- {
			samples += v.total[shown[n-1]]
			shown, others = shown[:n-1], others+1
		}
		return shown, others, samples
	}
	out.grow(v, func(node int32) ([]int32, int) {
		shown, others, samples := below(node)
		if v.percent(samples) < out.o.PercentLimit {
			others = 0
		}
		return shown, others
	}, func(b *branch) {
		if b.rest > 0 {
			_, _, samples := below(b.node)
			out.line(fmt.Sprintf("%s  %6s  %s%s", out.share(v, samples), "", out.lines(b.before),
				out.dim(fmt.Sprintf("(%s below %.3g%%)", human.Plural(uint64(b.rest), "other"), out.o.PercentLimit))))
			return
		}
		out.line(fmt.Sprintf("%s  %s  %s%s", out.share(v, v.total[b.node]), out.share(v, v.self[b.node]),
			out.lines(b.before), out.name(v, b, len("100.0%  100.0%  "))))
	})
}

// name is the function's name, cut to the columns that are left, with its image if that is not the caller's.
func (out *printer) name(v *view, b *branch, used int) string {
	f := v.frame(b.node)
	room := out.o.Width - used - min(utf8.RuneCountInString(b.before), out.maxLines())
	name := human.Clean(functionName(f))
	if f.Kind == profile.Process {
		return out.bold(out.cut(name, room))
	}
	if f.Image == b.image || !f.Known {
		return out.dimInlined(out.cut(name, room))
	}
	image := out.cut(human.Clean(v.p.Images[f.Image].Name), room/3)
	return out.dimInlined(out.cut(name, room-human.Columns(image)-2)) + "  " + out.dim(image)
}

// maxLines is how many columns the lines of the tree may take.
func (out *printer) maxLines() int {
	if out.o.whole {
		return mostLines
	}
	return out.o.Width / 2
}

// mostLines is that where lines have no limit: a tree may branch at every one of thousands of levels.
const mostLines = 1000

// lines are the tree's lines to the left of a name; if the tree is too deep, only the innermost ones. Each rune takes a
// column.
func (out *printer) lines(s string) string {
	if most := out.maxLines(); utf8.RuneCountInString(s) > most {
		from := len(s)
		for range most - 1 {
			_, size := utf8.DecodeLastRuneInString(s[:from])
			from -= size
		}
		s = "…" + s[from:]
	}
	return out.dim(s)
}
