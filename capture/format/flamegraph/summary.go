package flamegraph

import (
	"fmt"
	"slices"
	"strings"

	"unspool/capture/output/human"
	"unspool/capture/profile"
	"unspool/unwind"
)

// fact is a line of the summary.
type fact struct{ Name, Value string }

// summary returns what was recorded and how well its stacks were unwound.
func summary(p *profile.Profile) []fact {
	events := p.Sampled()
	var facts []fact
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, fact{name, human.Printable(value)})
		}
	}
	samples := fmt.Sprintf("%s of %s", human.Plural(p.Count(), "sample"),
		human.Plural(uint64(len(p.Threads)), "thread"))
	if p.Duration > 0 {
		samples += " in " + human.Duration(p.Duration)
	}
	add("Samples", samples)
	if len(events) > 0 {
		add("100 % is", p.WholeOf(events[0]))
	}
	add("Stacks", stacks(p))
	add("Lost", losses(p))
	var names []string
	for _, e := range events {
		names = append(names, p.Events[e].Name)
	}
	add("Events", strings.Join(names, ", "))
	add("Command", strings.Join(p.Command, " "))
	add("Host", strings.Join(strings.Fields(strings.Join([]string{p.Hostname, p.OSRelease, p.Arch}, " ")), " "))
	add("Recorded", p.When())
	notes := p.Notes()
	few := profile.Few(notes.Names, "unspool report -v lists them")
	for _, note := range slices.Concat(notes.Recording, few) {
		add("Note", note)
	}
	return facts
}

// origin says in short what was recorded where, as far as the recording does.
func origin(p *profile.Profile) string {
	parts := []string{strings.Join(p.Command, " "), p.Hostname}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return human.Printable(strings.Join(parts, " · "))
}

// stacks returns how many user stacks are complete, and why the others are not.
func stacks(p *profile.Profile) string {
	var ended [profile.NumEnds]uint64
	var said uint64
	for _, s := range p.Samples {
		if s.End != profile.Unsaid && int(s.End) < len(ended) {
			ended[s.End] += s.Count
			said += s.Count
		}
	}
	if said == 0 {
		return ""
	}
	complete, joined := ended[profile.Complete]+ended[profile.Joined], ended[profile.Joined]
	text := fmt.Sprintf("%s of the user stacks are complete (%s of %s)", human.Percent(complete, said),
		human.Number(complete), human.Number(said))
	if joined > 0 {
		text += fmt.Sprintf(", %s joined with callers seen before and after the sample",
			human.Percent(joined, said))
	}
	for r := range unwind.Reason(unwind.NumReasons) {
		if n := ended[profile.Ended(r)]; n > 0 && r != unwind.Root {
			text += fmt.Sprintf("; %s: %s", r.Words(), human.Percent(n, said))
		}
	}
	return text
}

func losses(p *profile.Profile) string {
	text := "none"
	if n := p.Lost(); n > 0 {
		text = fmt.Sprintf("%s (%s and %s, perhaps the same)", human.Number(n),
			human.Plural(p.LostRecords, "record"), human.Plural(p.LostSamples, "sample"))
		if p.LostRecords == 0 || p.LostSamples == 0 {
			text = human.Plural(p.LostRecords, "record")
			if p.LostRecords == 0 {
				text = human.Plural(p.LostSamples, "sample")
			}
		}
	}
	if p.Throttled > 0 {
		text += "; the kernel throttled sampling " + human.Plural(p.Throttled, "time")
	}
	return text
}
