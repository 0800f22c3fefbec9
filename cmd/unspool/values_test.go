package main

import (
	"testing"
	"time"

	"unspool/perfring"
)

func TestValues(t *testing.T) {
	var bytes byteCount
	var d span
	var graph callGraph
	var stack stackSize
	graph.size = &stack
	var freq rate
	most, err := perfring.MaxFreq()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		set  func(string) error
		text string
		ok   bool
		got  func() int64
		want int64
	}{
		{bytes.Set, "8192", true, func() int64 { return int64(bytes) }, 8192},
		{bytes.Set, "16k", true, func() int64 { return int64(bytes) }, 16384},
		{bytes.Set, "32KiB", true, func() int64 { return int64(bytes) }, 32768},
		{bytes.Set, "1M", true, func() int64 { return int64(bytes) }, 1 << 20},
		{bytes.Set, "4Q", false, nil, 0},
		{bytes.Set, "k", false, nil, 0},
		{bytes.Set, "9999999G", false, nil, 0},
		{stack.Set, "64k", false, nil, 0},
		{stack.Set, "0", false, nil, 0},
		{stack.Set, "-8", false, nil, 0},
		{stack.Set, "65528", true, func() int64 { return int64(stack) }, 65528},
		{graph.Set, "dwarf,4k", true, func() int64 { return int64(stack) }, 4096},
		{graph.Set, "dwarf,64k", false, nil, 0},
		{graph.Set, "fp", true, func() int64 { return int64(stack) }, 4096},
		{graph.Set, "fp,4k", false, nil, 0},
		{freq.Set, "99", true, func() int64 { return int64(freq) }, 99},
		{freq.Set, "max", true, func() int64 { return int64(freq) }, int64(most)},
		{freq.Set, "maximum", false, nil, 0},
		{freq.Set, "0", false, nil, 0},
		{d.Set, "1.5", true, func() int64 { return int64(d) }, int64(1500 * time.Millisecond)},
		{d.Set, "250ms", true, func() int64 { return int64(d) }, int64(250 * time.Millisecond)},
		{d.Set, "1m30s", true, func() int64 { return int64(d) }, int64(90 * time.Second)},
		{d.Set, "-1s", false, nil, 0},
		{d.Set, "NaN", false, nil, 0},
		{d.Set, "1e300", false, nil, 0},
		{d.Set, "", false, nil, 0},
	} {
		err := c.set(c.text)
		if (err == nil) != c.ok {
			t.Errorf("%q: %v", c.text, err)
		}
		if c.ok && c.got() != c.want {
			t.Errorf("%q is %d, want %d", c.text, c.got(), c.want)
		}
	}
}
