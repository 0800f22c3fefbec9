package flamegraph

import (
	"fmt"
	"strings"

	"unspool/capture/profile"
)

// Colours are numbered as profile.Kind is, and one more.
const (
	inlined = int(profile.Other) + 1
	colours = inlined + 1
	shades  = 4
)

// palette has a hue and a saturation for each colour, in degrees and percent, and the legend's word.
var palette = [colours]struct {
	hue, saturation int
	word, title     string
}{
	profile.User:     {24, 88, "user", "code of a file, or of the vDSO: the shades are by file"},
	inlined:          {45, 84, "inlined", "inlined by the compiler into the function above"},
	profile.JIT:      {146, 42, "JIT", "code made at run time"},
	profile.Kernel:   {214, 62, "kernel", "the kernel or a module: the shades are by module"},
	profile.Guest:    {276, 42, "guest", "inside a virtual machine"},
	profile.Unmapped: {220, 6, "unmapped", "an address that no mapping held"},
	profile.Process:  {178, 24, "process", "all processes of one name"},
	profile.Other:    {220, 6, "other stacks", "the rest of stacks that are too many to tell apart"},
}

// legend is the order in which colours are explained.
var legend = [...]int{int(profile.Process), int(profile.User), inlined, int(profile.JIT), int(profile.Kernel),
	int(profile.Guest), int(profile.Unmapped), int(profile.Other)}

// fill is a colour's shade, as CSS has it.
func fill(colour, shade int, dark bool) string {
	c := palette[colour]
	if dark {
		return hex(c.hue+3*shade-4, c.saturation*62/100, 33+2*shade)
	}
	return hex(c.hue+4*shade-6, c.saturation, 70+3*shade)
}

// hex turns hue, saturation and lightness into #rrggbb: viewers of SVG do not all know hsl().
func hex(hue, saturation, lightness int) string {
	h, s, l := float64((hue+360)%360), float64(saturation)/100, float64(lightness)/100
	channel := func(n float64) int {
		k := n + h/30
		for k >= 12 {
			k -= 12
		}
		return int(255*(l-s*min(l, 1-l)*max(-1, min(k-3, 9-k, 1))) + 0.5)
	}
	return fmt.Sprintf("#%02x%02x%02x", channel(0), channel(8), channel(4))
}

// rules formats one piece of CSS for every colour and shade.
func rules(format string, dark bool) string {
	var css strings.Builder
	for c := range colours {
		for s := range shades {
			fmt.Fprintf(&css, format, c, s, fill(c, s, dark))
		}
	}
	return css.String()
}
