package compare

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// pricedByHand has three rounds in which the command takes 100 ms without a profiler, and so much more with one, in
// percent. With frame pointers at 999 Hz, the mean is 2 and the standard deviation 1. Student's t with 2 degrees of
// freedom is 4.3027, and 4.3027 · 1 / √3 is 2.4842.
func pricedByHand() *Price {
	p := &Price{Kernel: "6.18\x1b", CPU: "A <fast> one", CPUs: 2, Load: [2]float64{0.25, 1.5}}
	for _, more := range [][4]float64{{1, 3.9, 10, 20}, {2, 4, 10, 20.4}, {3, 4.1, 10, 20.2}} {
		r := PriceRound{PriceWay{}: 100 * time.Millisecond}
		for i, way := range []PriceWay{{999, false}, {999, true}, {4999, false}, {4999, true}} {
			r[way] = time.Duration(math.Round(1e8 * (1 + more[i]/100)))
		}
		p.Rounds = append(p.Rounds, r)
	}
	return p
}

// pricedRows are the rows of pricedByHand. At 99 Hz, a round has 1.225 times its price at 999 Hz, less 0.225 times that
// at 4,999 Hz: −1.025, 0.2 and 1.425 with frame pointers, and 0.2775, 0.31 and 0.4775 with stacks. At 20 Hz the factors
// are 1.24475 and 0.24475, and at 0 Hz 1.24975 and 0.24975.
var pricedRows = []struct {
	row  PriceRow
	text string
}{
	{PriceRow{"frame_pointers", 999, false, 0.102, 0.02, -0.004842, 0.044842}, "not measurable: at most 5 %"},
	{PriceRow{"stacks", 999, false, 0.104, 0.04, 0.037516, 0.042484}, "4 % (3.7–4.3)"},
	{PriceRow{"frame_pointers", 4999, false, 0.110, 0.1, 0.1, 0.1}, "10 % (10–10)"},
	{PriceRow{"stacks", 4999, false, 0.1202, 0.202, 0.197032, 0.206968}, "20.2 % (19.7–20.7)"},
	{PriceRow{"frame_pointers", 0, true, 0, 0.00002, -0.031026, 0.031066}, "not measurable: at most 4 %"},
	{PriceRow{"stacks", 0, true, 0, -0.0004595, -0.003166, 0.002247}, "not measurable: at most 0.3 %"},
	{PriceRow{"frame_pointers", 20, true, 0, 0.00042, -0.030501, 0.031342}, "not measurable: at most 4 %"},
	{PriceRow{"stacks", 20, true, 0, 0.000351, -0.002348, 0.003049}, "not measurable: at most 0.4 %"},
	{PriceRow{"frame_pointers", 99, true, 0, 0.002, -0.028431, 0.032431}, "not measurable: at most 4 %"},
	{PriceRow{"stacks", 99, true, 0, 0.00355, 0.000884, 0.006216}, "0.4 % (0–0.7)"},
}

func TestPrice(t *testing.T) {
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }
	r := resultOf(t, counted(), Options{StackSize: 32768, Costs: &countedCosts, Price: pricedByHand()})
	const sentence = " The price of DWARF at 999 Hz is 4 % (3.7–4.3) of the CPU time, and that of frame pointers is not " +
		"measurable: at most 5 %, only while they profile."
	if !strings.HasSuffix(r.Verdict.Sentence, "% (99.3–100) are."+sentence) {
		t.Errorf("%s", r.Verdict.Sentence)
	}
	var written, text, page strings.Builder
	if err := r.WriteJSON(&written); err != nil {
		t.Fatal(err)
	}
	var read struct{ Price PriceResult }
	if err := json.Unmarshal([]byte(written.String()), &read); err != nil {
		t.Fatal(err)
	}
	p := &read.Price
	if p.Confidence != 0.95 || p.Rounds != 3 || !near(p.Without, 0.1) || p.CPU != "A <fast> one" || p.CPUs != 2 ||
		p.LoadBefore != 0.25 || p.LoadAfter != 1.5 || !strings.HasPrefix(p.Kernel, "6.18") ||
		len(p.Rows) != len(pricedRows) {
		t.Fatalf("%+v", p)
	}
	for i, want := range pricedRows {
		got, w := p.Rows[i], want.row
		if got.Way != w.Way || got.Hz != w.Hz || got.Computed != w.Computed || !near(got.CPU, w.CPU) ||
			!near(got.Share, w.Share) || !near(got.Low, w.Low) || !near(got.High, w.High) {
			t.Errorf("%+v, want %+v", got, w)
		}
		if got.Text() != want.text {
			t.Errorf("%+v: %q, want %q", w, got.Text(), want.text)
		}
	}
	if err := r.WriteText(&text, Style{}); err != nil {
		t.Fatal(err)
	}
	const table = `
what profiling costs this command     CPU time  more, each at 95 %
  without a profiler                   0.100 s
  frame pointers, 999 Hz               0.102 s  not measurable: at most 5 %
  stacks, 999 Hz                       0.104 s  4 % (3.7–4.3)
  frame pointers, 4,999 Hz             0.110 s  10 % (10–10)
  stacks, 4,999 Hz                     0.120 s  20.2 % (19.7–20.7)
  frame pointers, start and end       computed  not measurable: at most 4 %
  stacks, start and end               computed  not measurable: at most 0.3 %
  frame pointers, 20 Hz               computed  not measurable: at most 4 %
  stacks, 20 Hz                       computed  not measurable: at most 0.4 %
  frame pointers, 99 Hz               computed  not measurable: at most 4 %
  stacks, 99 Hz                       computed  0.4 % (0–0.7)
  3 rounds by turns, Linux 6.18?, A <fast> one, 2 CPUs, load average 0.25 before and 1.50 after
`
	if !strings.Contains(text.String(), table) {
		t.Errorf("%s\nhas no\n%s", &text, table)
	}
	if err := r.WritePage(&page, counted(), ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<td>stacks, 4,999 Hz</td><td class=\"n\">0.120 s</td><td>20.2 % (19.7–20.7)</td>",
		"<td>stacks, 99 Hz</td><td class=\"n\">computed</td><td>0.4 % (0–0.7)</td>",
		"A &lt;fast&gt; one, 2 CPUs, load average 0.25 before and 1.50 after</p>",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %q", want)
		}
	}
}

// A round in which everything takes twice as long is no spread. And where the time without a profiler alone differs,
// the price is that of the sums, 0 %, and not the mean of 50 % and −25 %: 1/3 and −1/3 have a standard deviation of
// 0.4714, and Student's t with one degree of freedom is 12.7062.
func TestPriceOfUnequalRounds(t *testing.T) {
	const ms = time.Millisecond
	p := Price{Rounds: []PriceRound{
		{PriceWay{}: 100 * ms, {999, false}: 110 * ms, {4999, false}: 150 * ms, {999, true}: 150 * ms},
		{PriceWay{}: 200 * ms, {999, false}: 220 * ms, {4999, false}: 300 * ms, {999, true}: 150 * ms},
	}}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-4 }
	if r := p.at(false, 999); !near(r.Low, 0.1) || !near(r.Share, 0.1) || !near(r.High, 0.1) {
		t.Errorf("%+v", r)
	}
	if r := p.at(false, 1999); !near(r.Low, 0.2) || !near(r.Share, 0.2) || !near(r.High, 0.2) {
		t.Errorf("%+v", r)
	}
	if r := p.at(true, 999); !near(r.Low, -4.2354) || !near(r.Share, 0) || !near(r.High, 4.2354) {
		t.Errorf("%+v", r)
	}
	none := Price{Rounds: []PriceRound{{}, {}}}
	if r := none.at(true, 20); math.IsNaN(r.Share) || math.IsInf(r.High, 0) {
		t.Errorf("%+v", r)
	}
}

// A price below zero is none that was measured.
func TestPriceBelowZero(t *testing.T) {
	row := PriceRow{Share: -0.02, Low: -0.03, High: -0.015}
	if got, want := row.Text(), "not measurable: at most 0 %"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPriceTurns(t *testing.T) {
	there, back := PriceTurns(0), PriceTurns(1)
	if len(there) != 5 || there[0] != (PriceWay{}) || !slices.Equal(PriceTurns(2), there) {
		t.Errorf("%v and %v", there, back)
	}
	slices.Reverse(back)
	if !slices.Equal(there, back) {
		t.Errorf("%v and, the other way round, %v", there, back)
	}
}

func TestInterruptTime(t *testing.T) {
	const whole = "cpu  2002076 975833 1219582 937875 14846 123 18149 42453 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
	if got, err := interruptTime([]byte(whole)); err != nil || got != 1230*time.Millisecond {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "cpu 1 2 3 4 5", "cpu0 1 2 3 4 5 6 7", "cpu 1 2 3 4 5 -6 7",
		"cpu 1 2 3 4 5 999999999999999 7"} {
		if got, err := interruptTime([]byte(bad)); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}
