package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"millwright/activities/cloud"
)

// A version promises names: of flags and commands, metrics, search attributes, messages, words, keys, exit codes and
// fields. Later versions add names, and remove or rename none before docs/changelog.md allows it. The names of a
// version are in testdata, one a line, and a test compares them with those of today.

// promises returns the names of this clone, sorted. It reads what `make generate` has written, and builds the programs.
func promises(ctx context.Context, repo string) ([]string, error) {
	all := map[string]bool{}
	for page, read := range map[string]func(section, line string) []string{
		"metrics.md": metricIn, "temporal.md": messageIn, "words.md": wordIn, "keys.md": keyIn,
	} {
		text, err := os.ReadFile(filepath.Join(repo, "docs", "reference", page))
		if err != nil {
			return nil, fmt.Errorf("read the reference: %w", err)
		}
		section := ""
		for line := range strings.Lines(string(text)) {
			line = strings.TrimRight(line, "\n")
			if title, is := strings.CutPrefix(line, "## "); is {
				section = title
			}
			for _, name := range read(section, line) {
				all[name] = true
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(repo, "deploy", "crds", "*_*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("find the CRDs: %w", err)
	}
	for _, file := range files {
		names, err := fieldsOf(file)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			all[name] = true
		}
	}
	calls, callsErr := callsOf(repo)
	commands, commandsErr := commandsOf(ctx, repo)
	if err := errors.Join(callsErr, commandsErr); err != nil {
		return nil, err
	}
	for _, name := range slices.Concat(calls, commands) {
		all[name] = true
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// callsOf returns the activities of a provider's task queue, and the fields of their arguments and answers.
func callsOf(repo string) (names []string, err error) {
	provider := reflect.TypeFor[*cloud.Provider]()
	for method := range provider.Methods() {
		names = append(names, "activity of a provider "+method.Name)
	}
	files, err := filepath.Glob(filepath.Join(repo, "docs", "schema", "*.json"))
	if err != nil {
		return nil, fmt.Errorf("find the schemas of calls: %w", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a schema of calls: %w", err)
		}
		var page struct {
			Defs map[string]struct {
				Properties map[string]json.RawMessage
			} `json:"$defs"`
		}
		if err := json.Unmarshal(text, &page); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		for kind, s := range page.Defs {
			for field := range s.Properties {
				names = append(names, fmt.Sprintf("field of a provider's calls %s.%s", kind, field))
			}
		}
	}
	return names, nil
}

// rowCells returns the cells of a row of a table, without the marks of code; nil: the line is no row.
func rowCells(line string) []string {
	line, is := strings.CutPrefix(line, "| `")
	if !is {
		return nil
	}
	var all []string
	for cell := range strings.SplitSeq(strings.TrimSuffix(line, " |"), " | ") {
		all = append(all, strings.ReplaceAll(cell, "`", ""))
	}
	return all
}

// metricIn returns the metric of a line. Its labels are part of the name, because another label changes its series.
func metricIn(_, line string) []string {
	row := rowCells(line)
	if len(row) < 4 {
		return nil
	}
	return []string{fmt.Sprintf("metric %s %s {%s}", row[0], row[1], row[2])}
}

// messageIn returns the search attribute of a line, the message with each workflow that takes it, or the command with
// its arguments.
func messageIn(section, line string) (names []string) {
	row := rowCells(line)
	if row == nil {
		return nil
	}
	list := func(cell string) []string { return strings.Split(cell, ", ") }
	target, isRequest := strings.CutPrefix(section, "Requests for a ")
	switch {
	case section == "Search attributes":
		return []string{fmt.Sprintf("search attribute %s %s", row[0], row[1])}
	case section == "Signals, updates and queries":
		for _, workflow := range list(row[2]) {
			names = append(names, fmt.Sprintf("%s %s of %s", row[1], row[0], workflow))
		}
	case isRequest:
		names = append(names, fmt.Sprintf("request %s for a %s", row[0], target))
		if row[1] == "optional" {
			names = append(names, fmt.Sprintf("request %s for a %s needs no reason", row[0], target))
		}
		for _, argument := range list(row[2]) {
			if argument != "none" {
				names = append(names, fmt.Sprintf("request %s for a %s with %s", row[0], target, argument))
			}
		}
	case section == "Fields of a request":
		return []string{"request field " + row[0]}
	}
	return names
}

func wordIn(section, line string) []string {
	if row := rowCells(line); row != nil {
		return []string{fmt.Sprintf("word of %s %s", strings.ToLower(section), row[0])}
	}
	return nil
}

func keyIn(_, line string) []string {
	if row := rowCells(line); row != nil {
		return []string{"key or value " + row[0]}
	}
	return nil
}

// crd is what a CustomResourceDefinition promises.
type crd struct {
	Metadata struct{ Name string }
	Spec     struct {
		Scope    string
		Names    struct{ ShortNames []string }
		Versions []struct {
			Name         string
			Subresources map[string]any
			Schema       struct {
				OpenAPIV3Schema fieldSchema `json:"openAPIV3Schema"`
			}
		}
	}
}

// fieldSchema is the schema of a field and of the fields below it.
type fieldSchema struct {
	Type                 string
	IntOrString          bool `json:"x-kubernetes-int-or-string"`
	Enum, Required       []string
	Properties           map[string]*fieldSchema
	Items                *fieldSchema
	AdditionalProperties *fieldSchema
}

// fieldsOf returns what a CRD promises: its fields with their types, which fields may be left out, and the allowed
// values of fields that list them.
func fieldsOf(path string) (names []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a CRD: %w", err)
	}
	var c crd
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	for _, version := range c.Spec.Versions {
		resource := "resource " + c.Metadata.Name + "/" + version.Name
		names = append(names, resource+" is "+c.Spec.Scope)
		for _, short := range c.Spec.Names.ShortNames {
			names = append(names, resource+" is called "+short)
		}
		for subresource := range version.Subresources {
			names = append(names, resource+" has the subresource "+subresource)
		}
		names = append(names, version.Schema.OpenAPIV3Schema.promises("field "+c.Metadata.Name+"/"+version.Name+" ")...)
	}
	return names, nil
}

// promises returns what a field and the fields below it promise. It is a promise that a field may be left out, because
// users' objects would break if the field became required.
func (s *fieldSchema) promises(path string) (names []string) {
	if s == nil {
		return nil
	}
	kind := s.Type
	if s.IntOrString {
		kind = "integer or string"
	}
	if names = []string{path + ": " + kind}; strings.HasSuffix(path, " ") {
		names = nil // the path names the object itself
	}
	for _, value := range s.Enum {
		names = append(names, path+" may be "+value)
	}
	for name, below := range s.Properties {
		if !slices.Contains(s.Required, name) {
			names = append(names, path+"."+name+" may be left out")
		}
		names = append(names, below.promises(path+"."+name)...)
	}
	return slices.Concat(names, s.Items.promises(path+"[]"), s.AdditionalProperties.promises(path+"{}"))
}

// writePromises writes the names of this clone into the list of a version. It is an error if the version is released.
func writePromises(ctx context.Context, repo, version string) error {
	tags, err := tagsOf(ctx, repo)
	if err != nil {
		return err
	}
	if tag := releasedAs(version, tags); tag != "" {
		return fmt.Errorf("%s is released as %s: what it promises does not change", version, tag)
	}
	names, err := promises(ctx, repo)
	if err != nil {
		return err
	}
	path := filepath.Join(repo, "test", "reference", "testdata", version+".txt")
	return writePage(path, strings.Join(names, "\n")+"\n")
}

// tagsOf returns the tags of versions in the history of a clone.
func tagsOf(ctx context.Context, repo string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "git", "-C", repo, "tag", "--merged", "HEAD", "--list", "v*").Output()
	if err != nil {
		return nil, fmt.Errorf("list the tags of %s: %w", repo, err)
	}
	return strings.Fields(string(out)), nil
}

// releasedAs returns the tag with which a version was released first; empty if it was not. v0.1 is released by v0.1.0
// or v0.1.0-rc.1, and not by v0.10.0.
func releasedAs(version string, tags []string) string {
	i := slices.IndexFunc(tags, func(tag string) bool {
		return tag == version || strings.HasPrefix(tag, version+".") || strings.HasPrefix(tag, version+"-")
	})
	if i < 0 {
		return ""
	}
	return tags[i]
}

// missingLines returns the lines of a list that another one lacks.
func missingLines(from string, in []string) (lines []string) {
	has := map[string]bool{}
	for _, line := range in {
		has[line] = true
	}
	for line := range strings.Lines(from) {
		if line = strings.TrimRight(line, "\n"); line != "" && !has[line] {
			lines = append(lines, line)
		}
	}
	return lines
}

// brokenSince returns the lines that were in the lists of names and of recorded histories at a tag, and are not there
// any more.
func brokenSince(ctx context.Context, repo, tag string) (broken []string, err error) {
	out, err := exec.CommandContext(ctx, "git", "-C", repo, "ls-tree", "-r", "--name-only", tag, "--", "test/reference/testdata", "workflows/testdata/replay").
		Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of %s: %w", tag, err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if ext := filepath.Ext(name); ext != ".txt" && ext != ".sum" {
			continue
		}
		released, err := exec.CommandContext(ctx, "git", "-C", repo, "show", tag+":"+name).Output()
		if err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", name, tag, err)
		}
		today, err := os.ReadFile(filepath.Join(repo, filepath.FromSlash(name)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("read a list: %w", err)
		}
		for _, line := range missingLines(string(released), strings.Split(string(today), "\n")) {
			broken = append(broken, name+": "+line)
		}
	}
	return broken, nil
}
