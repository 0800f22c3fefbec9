package firefox

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/klauspost/compress/gzip"

	"unspool/capture/profile"
)

// version is that of the processed format.
const version = 66

// Options say how a profile is written.
type Options struct {
	// Name is the name of the profile, usually that of the recording; "" for the name of the program.
	Name string
	// Lives is when threads began and ended; nil when that was not recorded.
	Lives *Lives
}

// writer writes one profile.
type writer struct {
	*encoder
	options  Options
	p        *profile.Profile
	timeline *profile.Timeline
	tables   *tables
	origin   uint64 // the time that others are relative to, in ns of the recording's clock
	end      uint64 // of the recording, relative to the origin
	interval uint64 // between two samples of a thread that runs, in ns; 0 when unknown
	main     int32  // the event whose samples are samples in the file, -1 if there are none
	threads  []thread
	events   []int32 // by event: its name in strings
	gaps     bool    // there is a thread for losses
	lost     int32   // names of its markers in strings
	held     int32
}

// Write writes a profile and its single samples, which are those of timeline. Memory depends on the numbers
// of distinct stacks and threads.
func Write(to io.Writer, p *profile.Profile, timeline *profile.Timeline, o Options) error {
	if err := p.CheckIndices(); err != nil {
		return err
	}
	if timeline == nil {
		return errors.New("no timeline: samples need their time")
	}
	w := &writer{options: o, p: p, timeline: timeline, tables: newTables(p), main: mainEvent(p)}
	w.origin = p.First
	for _, loss := range p.Losses {
		if loss.Time > 0 {
			w.origin = min(w.origin, loss.Time)
		}
	}
	w.end = p.First - w.origin + uint64(max(p.Duration, 0))
	for _, loss := range p.Losses {
		w.end = max(w.end, w.since(loss.Time))
	}
	w.interval = w.meanInterval()
	if err := w.describeThreads(); err != nil {
		return err
	}
	for _, e := range p.Events {
		w.events = append(w.events, w.tables.text(e.Name))
	}
	w.gaps = len(p.Losses) > 0 || len(p.Threads) == 0 // readers need at least one thread
	w.lost, w.held = w.tables.text("Lost samples"), w.tables.text("Throttled")
	if err := w.tables.check(); err != nil {
		return err
	}
	compressed := gzip.NewWriter(to)
	w.encoder = newEncoder(compressed)
	if err := w.write(); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return compressed.Close()
}

func (w *writer) write() error {
	w.Open('{')
	w.writeMeta()
	w.tables.writeLibs(w.encoder)
	w.Key("shared")
	w.tables.write(w.encoder)
	w.Key("threads")
	w.Open('[')
	for i := range w.threads {
		if err := w.writeThread(int32(i)); err != nil {
			return err
		}
	}
	if w.gaps {
		w.writeGaps()
	}
	w.Close()
	w.same("pages", 0, "")
	w.same("counters", 0, "")
	w.Close()
	return nil
}

// since is a time of the recording's clock relative to the origin.
func (w *writer) since(time uint64) uint64 { return time - min(time, w.origin) }

// mainEvent is the first event that has samples.
func mainEvent(p *profile.Profile) int32 {
	main := int32(-1)
	for _, s := range p.Samples {
		if main < 0 || s.Event < main {
			main = s.Event
		}
	}
	return main
}

// meanInterval is the time between two samples of a thread that runs.
func (w *writer) meanInterval() uint64 {
	if w.main < 0 {
		return 0
	}
	event := w.p.Events[w.main]
	if event.Frequency > 0 {
		return max(1e9/event.Frequency, 1)
	}
	if !event.Clock {
		return 0
	}
	var n, sum float64
	for _, s := range w.p.Samples {
		if s.Event == w.main {
			n += float64(s.Count)
			sum += float64(s.Period)
		}
	}
	return uint64(max(sum/n, 1))
}

func (w *writer) writeMeta() {
	p := w.p
	w.Key("meta")
	w.Open('{')
	number := func(name string, v int64) { w.Field(name, v) }
	text := func(name, s string) {
		if s != "" {
			w.Field(name, s)
		}
	}
	truth := func(name string, v bool) { w.Field(name, v) }
	number("version", 24) // of the unprocessed format; readers ignore it
	number("preprocessedProfileVersion", version)
	number("processType", 0)
	number("stackwalk", 1)
	interval := w.interval
	if interval == 0 {
		interval = 1e6 // the format needs one
	}
	w.Key("interval")
	w.milliseconds(interval)
	number("profilingStartTime", 0)
	w.Key("profilingEndTime") // the last sample lasts an interval
	w.milliseconds(w.end + min(interval, math.MaxUint64-w.end))
	w.Key("startTime")
	if began := p.Began.UnixNano(); !p.Began.IsZero() && began > 0 && uint64(began) > p.First-w.origin {
		w.milliseconds(uint64(began) - (p.First - w.origin))
	} else {
		w.Int(0)
	}
	name := w.options.Name
	if name == "" {
		name = "unspool"
	}
	text("product", name)
	text("importedFrom", "unspool")
	text("oscpu", strings.TrimSpace("Linux "+p.OSRelease+" "+p.Arch))
	text("device", p.Hostname)
	text("arguments", strings.Join(p.Command, " "))
	truth("debug", false)
	truth("symbolicated", true)
	truth("usesOnlyOneStackType", true)
	truth("sourceCodeIsNotOnSearchfox", true)
	w.Key("extensions")
	w.Raw(`{"length":0,"baseURL":[],"id":[],"name":[]}`)
	w.Key("sampleUnits")
	w.Raw(`{"time":"ms","eventDelay":"ms","threadCPUDelta":"ns"}`)
	writeCategories(w.encoder)
	w.Key("markerSchema")
	w.Raw(markerSchema)
	visible := w.visible()
	w.column("initialVisibleThreads", len(visible), func(i int) { w.index(visible[i]) })
	w.column("initialSelectedThreads", min(len(visible), 1), func(i int) { w.index(visible[i]) })
	w.writeExtra()
	w.Close()
}

// writeExtra writes what else is known about the recording: what is missing in it, and how its stacks end.
func (w *writer) writeExtra() {
	type entry struct {
		label, text string
		n           uint64
	}
	section := func(label string, entries []entry) {
		if len(entries) == 0 {
			return
		}
		w.Open('{')
		w.Field("label", label)
		w.column("entries", len(entries), func(i int) {
			w.Open('{')
			w.Field("label", entries[i].label)
			w.Key("format")
			if entries[i].text != "" {
				w.Raw(`"string"`)
				w.Field("value", entries[i].text)
			} else {
				w.Raw(`"integer"`)
				w.Key("value")
				w.Int(int64(min(entries[i].n, 1<<53)))
			}
			w.Close()
		})
		w.Close()
	}
	counts := func(of []entry) (some []entry) {
		for _, e := range of {
			if e.n > 0 {
				some = append(some, e)
			}
		}
		return some
	}
	var ends [256]uint64
	for _, s := range w.p.Samples {
		if s.Event == w.main {
			ends[s.End] += s.Count
		}
	}
	var stacks []entry
	for end, n := range ends {
		if label := profile.End(end).String(); n > 0 && label != "" {
			stacks = append(stacks, entry{label: label, n: n})
		}
	}
	var problems []entry
	for i, problem := range w.p.Problems {
		problems = append(problems, entry{label: fmt.Sprint(i + 1), text: problem})
	}
	w.Key("extra")
	w.Open('[')
	section("User stacks", stacks)
	section("Lost", counts([]entry{
		{label: "Records", n: w.p.LostRecords}, {label: "Samples", n: w.p.LostSamples},
		{label: "Times throttled", n: w.p.Throttled},
	}))
	section("Missing names and frames", problems)
	w.Close()
}
