package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"unspool/capture/output/human"
	"unspool/perfring"
)

// A valueError says what the value of an option must be.
type valueError string

func (e valueError) Error() string { return string(e) }

// errTooLarge is about a number that does not fit.
const errTooLarge = valueError("is too large")

// A byteCount is the value of an option that takes a number of bytes, which may have a unit of 1024: 32k, 1M.
type byteCount int

func (b *byteCount) String() string { return strconv.Itoa(int(*b)) }

// Type is the placeholder in the help of options that name none.
func (b *byteCount) Type() string { return "bytes" }

func (b *byteCount) Set(text string) error {
	number, unit, err := inUnits(text)
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return errTooLarge
	case err != nil:
		return valueError("must be a number of bytes, or a size such as 16k")
	case n > math.MaxInt32/int64(unit) || n < -math.MaxInt32/int64(unit):
		return errTooLarge
	}
	*b = byteCount(n * int64(unit))
	return nil
}

// A stackSize is how many bytes of a stack the kernel copies. 0 stands for as many as the rings have room
// for, and cannot be given.
type stackSize int

func (s *stackSize) String() string { return strconv.Itoa(int(*s)) }

// Type is the placeholder in the help of options that name none.
func (s *stackSize) Type() string { return "bytes" }

func (s *stackSize) Set(text string) error {
	var b byteCount
	if err := b.Set(text); err != nil {
		return err
	}
	if b < 8 || b > perfring.MaxStackSize || b%8 != 0 {
		return valueError("must be 8 to " + human.Number(perfring.MaxStackSize) + " bytes, a multiple of 8")
	}
	*s = stackSize(b)
	return nil
}

// inUnits splits a size into a number and what its unit stands for, 1 if it has none.
func inUnits(text string) (number string, unit uint64, err error) {
	number = strings.TrimRight(text, "BKMGbkmgi")
	switch strings.ToUpper(text[len(number):]) {
	case "", "B":
		return number, 1, nil
	case "K", "KB", "KIB":
		return number, 1 << 10, nil
	case "M", "MB", "MIB":
		return number, 1 << 20, nil
	case "G", "GB", "GIB":
		return number, 1 << 30, nil
	}
	return "", 0, valueError("the unit must be K, M or G")
}

// A span is the value of an option that takes a time: a number of seconds, or one with a unit, as in 1m30s.
type span time.Duration

// longest is more than three years.
const longest = 1e8 // seconds

func (s *span) String() string { return strconv.FormatFloat(time.Duration(*s).Seconds(), 'g', -1, 64) }

// Type is the placeholder in the help of options that name none.
func (s *span) Type() string { return "seconds" }

func (s *span) Set(text string) error { return atLeast{s, 0}.Set(text) }

// An atLeast is the value of an option that takes a time which may not be shorter.
type atLeast struct {
	*span
	least time.Duration
}

func (v atLeast) Set(text string) error {
	seconds, err := inSeconds(text)
	if err != nil {
		return err
	}
	if !(seconds >= v.least.Seconds() && seconds <= longest) { // not a number, too
		return valueError(fmt.Sprintf("must be %v to 100,000,000 seconds", v.least.Seconds()))
	}
	*v.span = span(seconds * float64(time.Second))
	return nil
}

// inSeconds reads a number of seconds, or a time with a unit.
func inSeconds(text string) (float64, error) {
	seconds, err := strconv.ParseFloat(text, 64)
	if err == nil {
		return seconds, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, valueError("must be a number of seconds, or a time such as 90s or 5m")
	}
	return d.Seconds(), nil
}

// A delay is the value of an option that takes a number of milliseconds, or a time with a unit. -1 is until
// something else happens.
type delay time.Duration

func (d *delay) String() string { return strconv.FormatInt(time.Duration(*d).Milliseconds(), 10) }

// Type is the placeholder in the help of options that name none.
func (d *delay) Type() string { return "ms" }

func (d *delay) Set(text string) error {
	const must = valueError("must be a number of milliseconds, a time such as 2s, or -1")
	if text == "-1" {
		*d = -1
		return nil
	}
	if _, err := strconv.ParseUint(text, 10, 64); err == nil {
		text += "ms"
	}
	t, err := time.ParseDuration(text)
	if err != nil || t < 0 || t.Seconds() > longest {
		return must
	}
	*d = delay(t)
	return nil
}

// A positive is the value of an option that takes a number, which zero is not.
type positive uint64

func (p *positive) String() string { return strconv.FormatUint(uint64(*p), 10) }

// Type is the placeholder in the help of options that name none.
func (p *positive) Type() string { return "number" }

func (p *positive) Set(text string) error {
	n, err := strconv.ParseUint(text, 0, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return errTooLarge
	case err != nil:
		return valueError("must be a whole number of at least 1")
	case n == 0:
		return valueError("must be at least 1")
	}
	*p = positive(n)
	return nil
}

// A rate is the value of an option that takes a number of samples a second, or max for as many as the kernel
// allows.
type rate uint64

func (r *rate) String() string { return strconv.FormatUint(uint64(*r), 10) }

// Type is the placeholder in the help of options that name none.
func (r *rate) Type() string { return "number" }

func (r *rate) Set(text string) error {
	if text != "max" {
		err := (*positive)(r).Set(text)
		if err != nil && err != errTooLarge {
			err = valueError(err.Error() + ", or max")
		}
		return err
	}
	most, err := perfring.MaxFreq()
	if err != nil || most == 0 {
		return valueError("the kernel does not say how much that is (kernel.perf_event_max_sample_rate): give a number")
	}
	*r = rate(most)
	return nil
}
