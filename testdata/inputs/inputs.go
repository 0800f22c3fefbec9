// Package inputs calls a fuzz function with millions of inputs in one process, without what the engine of go
// test takes for each. A target wraps its function in Many; go test -fuzz works with it as before. Only if
// UNSPOOL_INPUTS is a number, the test of the target's seeds makes that many inputs from them:
//
//	UNSPOOL_INPUTS=1000000 go test -cover -run '^FuzzMaps$' ./vmas
//
// An input is a seed, or one that reached code which none had reached before (with -cover), with some
// changes. All follows from UNSPOOL_INPUTS_SEED and the input's number. UNSPOOL_INPUTS_TIME of CPU ends it
// earlier, and a line about it is added to the file UNSPOOL_INPUTS_LOG.
package inputs

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"unspool/testdata/costs"
)

const (
	lastSeed = "the seeds end here" // a seed that Many adds
	batch    = 256                  // inputs of one subtest, which share its temporary folder
	failures = 10                   // after which it ends
	// How many inputs are run before it is asked whether one of them reached anything new.
	mostBetween = 64
	// What is kept for reaching something new.
	mostKept, mostBytes = 1 << 14, 128 << 20
)

// Total is how many inputs are wanted of each target; 0 if the seeds alone.
func Total() int {
	n, _ := strconv.Atoi(os.Getenv("UNSPOOL_INPUTS"))
	return n
}

// Many is fn, or if Total is not 0 a function for the same seeds, which calls fn with that many inputs. fn
// has a string or []byte among its parameters, f its seeds.
func Many[F any](f interface{ Add(...any) }, fn F, changes ...Change) F {
	if Total() == 0 {
		return fn
	}
	d := &driver{fn: reflect.ValueOf(fn)}
	d.source = rand.NewPCG(0, 0)
	d.rnd = rand.New(d.source)
	for _, c := range changes {
		c(&d.mutator)
	}
	var end []any
	for i := 1; i < d.fn.Type().NumIn(); i++ {
		v := reflect.New(d.fn.Type().In(i)).Elem()
		switch v.Interface().(type) {
		case string:
			v.SetString(lastSeed)
		case []byte:
			v.SetBytes([]byte(lastSeed))
		}
		end = append(end, v.Interface())
	}
	f.Add(end...)
	return reflect.MakeFunc(d.fn.Type(), func(args []reflect.Value) []reflect.Value {
		seed := make([]any, len(args)-1)
		for i := range seed {
			seed[i] = args[1+i].Interface()
		}
		if !reflect.DeepEqual(seed, end) {
			d.keep(seed)
		} else if t := args[0].Interface().(*testing.T); len(d.pool) > 0 {
			d.run(t)
		}
		return nil
	}).Interface().(F)
}

type driver struct {
	mutator
	fn       reflect.Value
	seed     uint64
	number   atomic.Int64 // of the input that is running
	failed   int
	coverage float64
	asked    int // number of the first input that coverage was not asked for
	between  int
}

// run calls the function until there were enough inputs, the time is over, or too many failed.
func (d *driver) run(t *testing.T) {
	d.seed, d.between = 1, 1
	if s, err := strconv.ParseUint(os.Getenv("UNSPOOL_INPUTS_SEED"), 10, 64); err == nil {
		d.seed = s
	}
	limit, err := time.ParseDuration(os.Getenv("UNSPOOL_INPUTS_TIME"))
	if err != nil {
		limit = math.MaxInt64
	}
	ended := make(chan struct{})
	defer close(ended)
	go d.watch(ended)
	seeds, n := len(d.pool), 0
	began := costs.CPUTime()
	for total := Total(); n < total && d.failed < failures && costs.CPUTime()-began < limit; {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			d.batch(t, &n, min(n+batch, total))
		})
	}
	took := costs.CPUTime() - began
	cpu, memory := costs.Largest()
	d.log(t, fmt.Sprintf("inputs=%d seconds=%.1f seeds=%d kept=%d cpu=%.4f memory=%.4f failures=%d", n,
		took.Seconds(), seeds, len(d.pool)-seeds, cpu, memory, d.failed))
}

// batch runs the inputs from *n up to end, or up to one that fails.
func (d *driver) batch(t *testing.T, n *int, end int) {
	var input []any
	running := false
	defer func() {
		r := recover()
		if r != nil {
			t.Errorf("panic: %v\n%s", r, debug.Stack())
		}
		if t.Failed() || running {
			d.failed++
			name := d.save(t, input)
			target, _, _ := strings.Cut(t.Name(), "/")
			t.Errorf("input %d of seed %d: go test -run '^%s$/%s'", d.number.Load(), d.seed, target, name)
		}
	}()
	args := []reflect.Value{reflect.ValueOf(t)}
	for *n < end && !t.Failed() {
		input = d.input(*n)
		d.number.Store(int64(*n))
		*n++
		args = args[:1]
		for _, v := range input {
			args = append(args, reflect.ValueOf(v))
		}
		running = true
		d.fn.Call(args)
		running = false
		if *n-d.asked >= d.between || *n == end {
			d.ask(*n)
		}
	}
}

// ask keeps the inputs before the n-th which it did not ask for, if one of them has reached something new.
func (d *driver) ask(n int) {
	if c := testing.Coverage(); c != d.coverage {
		var again [][]any // all of them before the pool changes, on which they depend
		for i := d.asked; i < n; i++ {
			again = append(again, clone(d.input(i)))
		}
		for _, input := range again {
			d.keep(input)
		}
		d.coverage = c
		d.between = max(d.between/2, 1)
	} else if n%128 == 0 {
		d.between = min(d.between+1, mostBetween)
	}
	d.asked = n
}

// input is the n-th input. It is only valid until the next one.
func (d *driver) input(n int) []any {
	d.source.Seed(d.seed, uint64(n))
	return d.change()
}

// keep adds what changes can be made to. It takes over the input.
func (d *driver) keep(input []any) {
	e := entry{args: input}
	for _, v := range input {
		switch v := v.(type) {
		case []byte:
			e.places = append(e.places, d.placesOf(v))
			d.held += len(v)
		case string:
			e.places = append(e.places, nil)
			d.held += len(v)
		default:
			e.places = append(e.places, nil)
		}
	}
	if len(d.pool) < mostKept && d.held < mostBytes {
		d.pool = append(d.pool, e)
	}
}

// watch ends the process when an input takes more than a minute. A process that is stopped and continued has
// not taken that long: it gets one tick for all the time.
func (d *driver) watch(ended chan struct{}) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for last, same := int64(-1), 0; ; {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		n := d.number.Load()
		if same++; n != last {
			last, same = n, 0
		}
		if same == 12 {
			debug.SetTraceback("all")
			panic(fmt.Sprintf("input %d of seed %d takes longer than a minute", n, d.seed))
		}
	}
}

// save writes an input where go test looks for seeds of the target, and returns its name.
func (d *driver) save(t *testing.T, input []any) string {
	var b bytes.Buffer
	b.WriteString("go test fuzz v1\n")
	for _, v := range input {
		switch v := v.(type) {
		case []byte:
			fmt.Fprintf(&b, "[]byte(%q)\n", v)
		case string:
			fmt.Fprintf(&b, "string(%q)\n", v)
		default:
			fmt.Fprintf(&b, "%T(%v)\n", v, v)
		}
	}
	target, _, _ := strings.Cut(t.Name(), "/")
	dir := filepath.Join("testdata", "fuzz", target)
	name := fmt.Sprintf("%x", sha256.Sum256(b.Bytes()))[:16]
	err := os.MkdirAll(dir, 0o777)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o666)
	}
	if err != nil {
		t.Error(err)
	}
	return name
}

func (d *driver) log(t *testing.T, line string) {
	target, _, _ := strings.Cut(t.Name(), "/")
	t.Log(line)
	name := os.Getenv("UNSPOOL_INPUTS_LOG")
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%s %s\n", target, line); err != nil {
		t.Error(err)
	}
}

func clone(input []any) []any {
	input = append([]any(nil), input...)
	for i, v := range input {
		if b, ok := v.([]byte); ok {
			input[i] = bytes.Clone(b)
		}
	}
	return input
}
