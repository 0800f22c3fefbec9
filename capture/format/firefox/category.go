package firefox

import "unspool/capture/profile"

// category is what the colour of a frame means. The first subcategory is the category itself; the first grey
// category is for frames without one.
type category struct {
	name, color   string
	subcategories []string
}

const (
	itself = iota
	inlined
	nameless
)

var subcategories = []string{itself: "Other", inlined: "Inlined", nameless: "Without symbols"}

// other is the category of markers, which have no code.
const other = 0

var categories = []category{
	other:                     {"Other", "grey", subcategories[:1]},
	1 + int(profile.User):     {"User", "yellow", subcategories},
	1 + int(profile.Kernel):   {"Kernel", "orange", subcategories},
	1 + int(profile.JIT):      {"JIT", "green", subcategories},
	1 + int(profile.Guest):    {"Guest", "purple", subcategories[:1]},
	1 + int(profile.Unmapped): {"Unmapped", "darkgrey", subcategories[:1]},
}

func categoryOf(f *profile.Frame) (category, subcategory int) {
	category = 1 + int(f.Kind)
	switch {
	case category >= len(categories):
		return other, itself
	case !f.Kind.IsCode():
		return category, itself
	case f.Inlined:
		return category, inlined
	case !f.Known:
		return category, nameless
	}
	return category, itself
}

func writeCategories(e *encoder) {
	e.column("categories", len(categories), func(i int) {
		c := &categories[i]
		e.Open('{')
		e.Field("name", c.name)
		e.Field("color", c.color)
		e.column("subcategories", len(c.subcategories), func(i int) { e.Value(c.subcategories[i]) })
		e.Close()
	})
}
