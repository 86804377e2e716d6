package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed data/*.yaml
var dataFiles embed.FS

// registry is all that data/ says.
type registry struct {
	Parts    []part   `json:"parts"`
	Resolved []int    `json:"resolved"` // parts whose scenarios must all be shown or have a reason
	Families []string `json:"families"` // in the order of the document; each has a file data/<family>.yaml

	families []family
}

// part is one part of the work.
type part struct {
	Number int    `json:"number"`
	Title  string `json:"title"`
}

// family is a group of scenarios whose IDs begin alike.
type family struct {
	Name      string     `json:"family"`
	Title     string     `json:"title"`
	Scenarios []scenario `json:"scenarios"`
}

// scenario is one row of the document.
type scenario struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	Part   int    `json:"part"`
	Also   []int  `json:"also"`   // further parts that show their own share; each wants a test of its own
	Reason string `json:"reason"` // what Millwright does instead, and why; empty means that it does what the title says
	Weak   string `json:"weak"`   // what its tests leave out; empty means that no gap is known
}

// loadRegistry reads and validates data/. A key that is not known is an error, so that a typo does not drop a reason.
func loadRegistry(files fs.FS) (*registry, error) {
	reg := &registry{}
	if err := readYAML(files, "registry", reg); err != nil {
		return nil, err
	}
	for _, name := range reg.Families {
		var f family
		if err := readYAML(files, name, &f); err != nil {
			return nil, err
		}
		if f.Name != name {
			return nil, fmt.Errorf("read family %s: its file says %s", name, f.Name)
		}
		reg.families = append(reg.families, f)
	}
	return reg, reg.validate()
}

func readYAML(files fs.FS, name string, into any) error {
	data, err := fs.ReadFile(files, "data/"+name+".yaml")
	if err != nil {
		return fmt.Errorf("read registry: %w", err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		return fmt.Errorf("parse data/%s.yaml: %w", name, err)
	}
	return nil
}

func (r *registry) validate() error {
	seen := map[string]bool{}
	var errs []error
	for _, f := range r.families {
		for _, s := range f.Scenarios {
			for _, number := range append([]int{s.Part}, s.Also...) {
				if !slices.ContainsFunc(r.Parts, func(p part) bool { return p.Number == number }) {
					errs = append(errs, fmt.Errorf("%s: there is no part %d", s.ID, number))
				}
			}
			switch {
			case seen[s.ID]:
				errs = append(errs, fmt.Errorf("%s: stands twice", s.ID))
			case !idOf(f.Name).MatchString(s.ID):
				errs = append(errs, fmt.Errorf("%s: is no ID of family %s", s.ID, f.Name))
			case s.Title == "":
				errs = append(errs, fmt.Errorf("%s: has no title", s.ID))
			case s.Reason != "" && s.Weak != "":
				errs = append(errs, fmt.Errorf("%s: has a reason, so that no test can be weak", s.ID))
			case !isSentence(s.Reason + s.Weak):
				errs = append(errs, fmt.Errorf("%s: its reason or weak is no full sentence", s.ID))
			}
			seen[s.ID] = true
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("validate registry: %w", err)
	}
	return nil
}

// isSentence accepts no text, too.
func isSentence(text string) bool {
	return text == "" || len(strings.Fields(text)) >= 5 && strings.HasSuffix(text, ".")
}

// open tells whether a part of s still lacks a test. A scenario of several parts needs as many tests as it has parts.
func (s scenario) open(tests int) bool {
	return s.Reason == "" && tests < 1+len(s.Also)
}

// missing lists the scenarios of resolved parts that have neither enough tests nor a reason.
func (r *registry) missing(shown map[string][]proof) []string {
	var missing []string
	for _, f := range r.families {
		for _, s := range f.Scenarios {
			needed := 0
			for _, number := range append([]int{s.Part}, s.Also...) {
				if slices.Contains(r.Resolved, number) {
					needed++
				}
			}
			if tests := len(shown[s.ID]); s.Reason == "" && tests < needed {
				missing = append(missing, fmt.Sprintf("%s (part %s) is open, tests needed %d, found %d: %s",
					s.ID, s.parts(), needed, tests, s.Title))
			}
		}
	}
	return missing
}
