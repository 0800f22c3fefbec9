package builds

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"

	"unspool/capture/output/human"
	"unspool/capture/profile/difference"
)

// Result is what the rounds came to.
type Result struct {
	Commands [builds]string
	Rounds   Rounds
	Recorded int // recordings of each, which are not in the times
}

// Sentence says by how much the CPU times differ, and no more than the interval allows.
func (r *Result) Sentence() string {
	n := human.Plural(uint64(len(r.Rounds)), "round")
	cpu := r.Rounds.CPU()
	switch {
	case len(r.Rounds) == 0:
		return "No round is complete: nothing can be said of the times."
	case !cpu.Known:
		return "One round has no interval: nothing can be said of the times. It takes two rounds, and mostly some more."
	case cpu.Low > 0:
		return fmt.Sprintf("B takes between %s and %s more CPU time than A (95 %%, %s).", percent(cpu.Low),
			percent(cpu.High), n)
	case cpu.High < 0:
		return fmt.Sprintf("B takes between %s and %s less CPU time than A (95 %%, %s).", percent(-cpu.High),
			percent(-cpu.Low), n)
	}
	return fmt.Sprintf("No difference in CPU time is certain: B takes between %s less and %s more than A (95 %%, %s).",
		percent(-cpu.Low), percent(cpu.High), n)
}

// percent is a share that is not negative.
func percent(share float64) string {
	digits := 2
	if share >= 0.0995 {
		digits = 1
	}
	return fmt.Sprintf("%.*f %%", digits, 100*max(share, 0))
}

// WriteText writes the sentence, and both times.
func (r *Result) WriteText(w io.Writer) error {
	text := r.Sentence() + "\n\n"
	for build, name := range [builds]string{"A", "B"} {
		text += fmt.Sprintf("%-9s %s\n", name, human.Clean(r.Commands[build]))
	}
	if len(r.Rounds) > 0 {
		text += fmt.Sprintf("\n%-9s %10s %10s  %s\n", "", "A", "B", "B takes more, in percent, at 95 % each")
		for _, t := range r.times() {
			text += fmt.Sprintf("%-9s %8.3f s %8.3f s  %s\n", t.name, t.a, t.b, t.ratio.words())
		}
	}
	text += fmt.Sprintf("\n%-9s %d by turns, A B, B A, without a profiler: its price is not in these times\n", "rounds",
		len(r.Rounds))
	_, err := io.WriteString(w, text)
	return err
}

// words are the difference in percent, with its interval.
func (r *Ratio) words() string {
	text := fmt.Sprintf("%+.2f", 100*r.Value)
	if r.Known {
		text += fmt.Sprintf(" (%+.2f to %+.2f)", 100*r.Low, 100*r.High)
	} else {
		text += " (no interval)"
	}
	return strings.ReplaceAll(text, "-", "−")
}

type named struct {
	name  string
	a, b  float64 // means, in seconds
	ratio Ratio
}

func (r *Result) times() []named {
	return []named{
		{"wall", r.Rounds.mean(A, wallOf), r.Rounds.mean(B, wallOf), r.Rounds.Wall()},
		{"CPU time", r.Rounds.mean(A, cpuOf), r.Rounds.mean(B, cpuOf), r.Rounds.CPU()},
	}
}

type jsonRun struct {
	Wall float64 `json:"wall_s"`
	CPU  float64 `json:"cpu_s"`
}

type jsonBuild struct {
	Command string    `json:"command"`
	Wall    float64   `json:"wall_s"`
	CPU     float64   `json:"cpu_s"`
	Runs    []jsonRun `json:"runs"`
}

type jsonRatio struct {
	Difference   float64  `json:"difference"`
	Low          *float64 `json:"low"`
	High         *float64 `json:"high"`
	ExcludesZero bool     `json:"excludes_zero"`
}

type jsonResult struct {
	Version    int             `json:"version"`
	Sentence   string          `json:"sentence"`
	Confidence float64         `json:"confidence"`
	Rounds     int             `json:"rounds"`
	Recorded   int             `json:"recorded"`
	A          jsonBuild       `json:"a"`
	B          jsonBuild       `json:"b"`
	Wall       *jsonRatio      `json:"wall"`
	CPU        *jsonRatio      `json:"cpu"`
	Functions  json.RawMessage `json:"difference"`
}

// WriteJSON writes the result as one JSON object and a newline. functions is what 'report --json' writes about the
// recordings, nil for none.
func (r *Result) WriteJSON(w io.Writer, functions []byte) error {
	out := jsonResult{
		Version: 1, Sentence: r.Sentence(), Confidence: difference.Confidence, Rounds: len(r.Rounds), Recorded: r.Recorded,
		A: r.json(A), B: r.json(B), Functions: functions,
	}
	if len(r.Rounds) > 0 {
		out.Wall, out.CPU = ratioOf(r.Rounds.Wall()), ratioOf(r.Rounds.CPU())
	}
	e := json.NewEncoder(human.JSON(w))
	e.SetEscapeHTML(false)
	return e.Encode(out)
}

func (r *Result) json(build int) jsonBuild {
	b := jsonBuild{r.Commands[build], r.Rounds.mean(build, wallOf), r.Rounds.mean(build, cpuOf), []jsonRun{}}
	for i := range r.Rounds {
		u := &r.Rounds[i][build]
		b.Runs = append(b.Runs, jsonRun{u.Wall.Seconds(), u.CPU.Seconds()})
	}
	return b
}

func ratioOf(r Ratio) *jsonRatio {
	out := &jsonRatio{Difference: r.Value, ExcludesZero: r.ExcludesZero()}
	if r.Known && !math.IsInf(r.High, 0) {
		out.Low, out.High = &r.Low, &r.High
	}
	return out
}
