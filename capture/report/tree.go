package report

import (
	"fmt"

	"unspool/capture/human"
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
	rest          int   // if not 0, the branch is not a node but this many children below the limit
	weight        uint64
}

// tree prints the tree of calls. If a function has one child to show, the child is printed under it without
// indentation; if it has several, each begins a branch.
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
	stack := out.children(v, branch{node: 0, image: -1}, nil)
	for len(stack) > 0 {
		b := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if b.rest > 0 {
			out.line(fmt.Sprintf("%s  %6s  %s%s", out.share(v, b.weight), "", out.lines(b.before),
				out.dim(fmt.Sprintf("(%s below %.3g%%)", human.Plural(uint64(b.rest), "other"), out.o.PercentLimit))))
			continue
		}
		f := v.frame(b.node)
		out.line(fmt.Sprintf("%s  %s  %s%s", out.share(v, v.total[b.node]), out.share(v, v.self[b.node]),
			out.lines(b.before), out.name(v, f, b)))
		b.image = f.Image
		stack = out.children(v, b, stack)
	}
}

// name is the function's name, cut to the columns that are left, with its image if that is not the caller's.
func (out *printer) name(v *view, f *profile.Frame, b branch) string {
	room := out.o.Width - len("100.0%  100.0%  ") - min(human.Columns(b.before), out.maxLines())
	name := human.Clean(functionName(f))
	if f.Kind == profile.Process {
		return out.bold(human.Shorten(name, room))
	}
	if f.Image == b.image || !f.Known {
		return out.dimInlined(human.Shorten(name, room))
	}
	image := human.Shorten(human.Clean(v.p.Images[f.Image].Name), room/3)
	return out.dimInlined(human.Shorten(name, room-human.Columns(image)-2)) + "  " + out.dim(image)
}

// children pushes the children of b that are to be shown onto the stack, the heaviest last.
func (out *printer) children(v *view, b branch, stack []branch) []branch {
	kids := v.childs[b.node]
	shown := len(kids)
	var rest uint64
	for shown > 0 && v.percent(v.total[kids[shown-1]]) < out.o.PercentLimit {
		shown--
		rest += v.total[kids[shown]]
	}
	others := len(kids) - shown
	if v.percent(rest) < out.o.PercentLimit {
		others = 0
	}
	if shown == 1 && others == 0 {
		return append(stack, branch{node: kids[0], before: b.below, below: b.below, image: b.image})
	}
	if others > 0 {
		stack = append(stack, branch{before: b.below + "└─ ", rest: others, weight: rest})
	}
	for i := shown - 1; i >= 0; i-- {
		next := branch{node: kids[i], before: b.below + "├─ ", below: b.below + "│  ", image: b.image}
		if i == shown-1 && others == 0 {
			next.before, next.below = b.below+"└─ ", b.below+"   "
		}
		stack = append(stack, next)
	}
	return stack
}

// maxLines is how many columns the lines of the tree may take.
func (out *printer) maxLines() int { return out.o.Width / 2 }

// lines are the tree's lines to the left of a name; if the tree is too deep, only the innermost ones.
func (out *printer) lines(s string) string {
	if w := human.Columns(s); w > out.maxLines() {
		s = "…" + string([]rune(s)[w-out.maxLines()+1:])
	}
	return out.dim(s)
}
