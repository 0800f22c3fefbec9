package builds

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

func near(a, b, within float64) bool { return math.Abs(a-b) <= within }

// rounds are rounds of which A takes 100 ms of CPU and 200 ms in all, and B so much more of both, in percent.
func rounds(percent ...float64) (r Rounds) {
	for _, p := range percent {
		cpu := time.Duration(math.Round(1e8 * (1 + p/100)))
		r = append(r, Round{{200 * time.Millisecond, 100 * time.Millisecond}, {2 * cpu, cpu}})
	}
	return r
}

// By hand: the logarithms of 1.01, 1.02 and 1.03 are 0.0099503, 0.0198026 and 0.0295588, with a mean of 0.0197706 and a
// standard deviation of 0.0098043. Student's t with 2 degrees of freedom is 4.3027, and 4.3027 · 0.0098043 / √3 is
// 0.0243552: from −0.0045846 to 0.0441258, or −0.457 % to 4.511 %.
func TestInterval(t *testing.T) {
	r := rounds(1, 2, 3)
	for _, ratio := range []Ratio{r.CPU(), r.Wall()} {
		if !near(ratio.Value, 0.0199673, 1e-6) || !near(ratio.Low, -0.0045741, 1e-6) ||
			!near(ratio.High, 0.0451138, 1e-6) || !ratio.Known || ratio.ExcludesZero() {
			t.Errorf("%+v", ratio)
		}
	}
	if one := rounds(7)[:1].CPU(); one.Known || one.ExcludesZero() || one.Within(1) || !near(one.Value, 0.07, 1e-9) {
		t.Errorf("%+v", one)
	}
	// What is the same in A and B of a round, is no spread.
	r = nil
	for i := range 4 {
		d := time.Duration(1+i) * time.Second
		r = append(r, Round{{d, d}, {d * 101 / 100, d * 101 / 100}})
	}
	if ratio := r.CPU(); !near(ratio.Low, 0.01, 1e-9) || !near(ratio.High, 0.01, 1e-9) || !ratio.ExcludesZero() {
		t.Errorf("%+v", ratio)
	}
	// Times of zero are no numbers.
	if ratio := (Rounds{{}, {}}).CPU(); ratio.Value != 0 || math.IsNaN(ratio.Low) {
		t.Errorf("%+v", ratio)
	}
}

// Looks are after 8, 16, 32 … rounds. Together with the last interval they are wrong with 5 % at most.
func TestLooks(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 0, 8: 0, 9: 1, 16: 1, 17: 2, 32: 2, 33: 3} {
		if got := looks(n); got != want {
			t.Errorf("%d rounds: %d looks before", n, got)
		}
	}
	for n, want := range map[int]float64{7: 0.05, 8: 0.05, 9: 0.025, 16: 0.025, 17: 0.0125} {
		var wide []float64
		for i := range n {
			wide = append(wide, float64(20*(i%2)))
		}
		if got := rounds(wide...).left(); !near(got, want, 1e-12) {
			t.Errorf("%d rounds: %v is left", n, got)
		}
	}
	// Where a look ends them, the interval is that of the look, so that 2.5 %, 1.25 % … and what is left are 5 %.
	for n, want := range map[int]float64{8: 0.025, 16: 0.0125, 32: 0.00625, 31: 0.0125} {
		if got := rounds(make([]float64, n)...).left(); !near(got, want, 1e-12) {
			t.Errorf("%d rounds that are alike: %v is left", n, got)
		}
	}
	same := make([]float64, 40)
	var enough []int
	for n := range len(same) {
		if rounds(same[:n]...).Enough() {
			enough = append(enough, n)
		}
	}
	if len(enough) != 3 || enough[0] != 8 || enough[1] != 16 || enough[2] != 32 {
		t.Errorf("looked after %v", enough)
	}
	// Half of 8 rounds have d % more, half as much less, as logarithms: their standard deviation is d √(8/7), of the mean
	// d / √7. Student's t is 2.8412 with 2.5 % outside and 7 degrees of freedom: 0.5 % is reached up to d = 0.4656 %.
	of := func(d float64) Rounds {
		more, less := 100*math.Expm1(d/100), 100*math.Expm1(-d/100)
		return rounds(more, less, more, less, more, less, more, less)
	}
	if !of(0.464).Enough() || of(0.467).Enough() {
		t.Error("0.5 % is reached elsewhere")
	}
	if First(0) != A || First(1) != B || First(2) != A {
		t.Error("not by turns")
	}
}

// No sentence says more than its interval.
func TestSentence(t *testing.T) {
	for _, c := range []struct {
		rounds Rounds
		want   string
	}{
		{nil, "No round is complete: nothing can be said of the times."},
		{rounds(9), "One round has no interval: nothing can be said of the times. It takes two rounds, and mostly some " +
			"more."},
		{rounds(1, 2, 3), "No difference in CPU time is certain: B takes between 0.46 % less and 4.51 % more than A " +
			"(95 %, 3 rounds)."},
		// ±0.0243552 / 10, as differences are a tenth: 1.9 to 2.1, around 0.0198026.
		{rounds(1.9, 2, 2.1), "B takes between 1.75 % and 2.25 % more CPU time than A (95 %, 3 rounds)."},
		{rounds(-20, -20), "B takes between 20.0 % and 20.0 % less CPU time than A (95 %, 2 rounds)."},
	} {
		r := Result{Rounds: c.rounds}
		if got := r.Sentence(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestText(t *testing.T) {
	r := Result{Commands: [2]string{"./old\x1b", "./new"}, Rounds: rounds(1, 2, 3), Recorded: 3}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	want := r.Sentence() + `

A         ./old?
B         ./new

                   A          B  B takes more, in percent, at 95 % each
wall         0.200 s    0.204 s  +2.00 (−0.46 to +4.51)
CPU time     0.100 s    0.102 s  +2.00 (−0.46 to +4.51)

rounds    3 by turns, A B, B A, without a profiler: its price is not in these times
`
	if text.String() != want {
		t.Errorf("%s\nwant\n%s", &text, want)
	}
	text.Reset()
	one := Result{Rounds: rounds(1)}
	if err := one.WriteText(&text); err != nil || !strings.Contains(text.String(), "+1.00 (no interval)\n") {
		t.Errorf("%v, %s", err, &text)
	}
}

func TestJSON(t *testing.T) {
	r := Result{Commands: [2]string{"./old", "./new"}, Rounds: rounds(1, 2, 3), Recorded: 2}
	var text strings.Builder
	if err := r.WriteJSON(&text, []byte(`{"events":[]}`)); err != nil {
		t.Fatal(err)
	}
	var got jsonResult
	if err := json.Unmarshal([]byte(text.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Sentence != r.Sentence() || got.Rounds != 3 || got.Recorded != 2 || got.A.Command != "./old" ||
		!near(got.A.CPU, 0.1, 1e-12) || !near(got.B.Wall, 0.204, 1e-12) || len(got.B.Runs) != 3 ||
		!near(got.B.Runs[2].CPU, 0.103, 1e-12) || !near(*got.CPU.High, 0.0451138, 1e-6) ||
		!near(*got.Wall.Low, -0.0045741, 1e-6) || got.CPU.ExcludesZero || string(got.Functions) != `{"events":[]}` ||
		got.Version != 1 || got.Confidence != 0.95 {
		t.Errorf("%s", &text)
	}
	for n, want := range map[int]string{0: `"wall":null,"cpu":null`, 1: `"low":null,"high":null`} {
		text.Reset()
		short := Result{Rounds: r.Rounds[:n]}
		if err := short.WriteJSON(&text, nil); err != nil || !strings.Contains(text.String(), want) {
			t.Errorf("%d rounds: %v, %s", n, err, &text)
		}
	}
}
