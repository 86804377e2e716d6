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

// A version promises the names of flags, commands, metrics, search attributes, messages, words, keys, exit codes and
// fields. Later versions may add names. Later versions may remove or rename a name only if docs/changelog.md allows it.
// testdata has a list of names for each version, with one name per line. A test compares these lists with the current
// names.

// promisedNames returns the names of this clone, sorted. promisedNames reads the files that `make generate` has
// written, and builds the programs.
func promisedNames(ctx context.Context, repo string) ([]string, error) {
	all := map[string]bool{}
	for page, read := range map[string]func(section, line string) []string{
		"metrics.md": metricNamesInRow, "temporal.md": temporalNamesInRow, "words.md": wordsInRow, "keys.md": keysInRow,
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
		names, err := promisedCRDNames(file)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			all[name] = true
		}
	}
	calls, callsErr := providerActivityNames(repo)
	commands, commandsErr := buildAndReadPrograms(ctx, repo)
	if err := errors.Join(callsErr, commandsErr); err != nil {
		return nil, err
	}
	for _, name := range slices.Concat(calls, commands) {
		all[name] = true
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// providerActivityNames returns the activities of a provider's task queue, and the fields of their arguments and
// results.
func providerActivityNames(repo string) (names []string, err error) {
	provider := reflect.TypeFor[*cloud.Activities]()
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

// rowCells returns the cells of a table row without backticks. The result is nil if the line is not a table row.
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

// metricNamesInRow returns the metric of a line. The name includes the labels, because an additional label changes the
// time series.
func metricNamesInRow(_, line string) []string {
	row := rowCells(line)
	if len(row) < 4 {
		return nil
	}
	return []string{fmt.Sprintf("metric %s %s {%s}", row[0], row[1], row[2])}
}

// temporalNamesInRow returns the names in a line. A name is a search attribute, a message with a workflow that accepts
// it, or a command with its arguments.
func temporalNamesInRow(section, line string) (names []string) {
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

func wordsInRow(section, line string) []string {
	if row := rowCells(line); row != nil {
		return []string{fmt.Sprintf("word of %s %s", strings.ToLower(section), row[0])}
	}
	return nil
}

func keysInRow(_, line string) []string {
	if row := rowCells(line); row != nil {
		return []string{"key or value " + row[0]}
	}
	return nil
}

// crd is the part of a CustomResourceDefinition that a version promises.
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

// fieldSchema is the schema of a field, including its subfields.
type fieldSchema struct {
	Type                 string
	IntOrString          bool `json:"x-kubernetes-int-or-string"`
	Enum, Required       []string
	Properties           map[string]*fieldSchema
	Items                *fieldSchema
	AdditionalProperties *fieldSchema
}

// promisedCRDNames returns the promised names of a CRD: the fields with their types, the optional fields, and the
// allowed values of enumerated fields.
func promisedCRDNames(path string) (names []string, err error) {
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
		names = append(names, version.Schema.OpenAPIV3Schema.promisedNames("field "+c.Metadata.Name+"/"+version.Name+" ")...)
	}
	return names, nil
}

// promisedNames returns the promised names of a field and of the fields below it. A version also promises that an
// optional field stays optional, because a new required field would make existing objects invalid.
func (s *fieldSchema) promisedNames(path string) (names []string) {
	if s == nil {
		return nil
	}
	kind := s.Type
	if s.IntOrString {
		kind = "integer or string"
	}
	if names = []string{path + ": " + kind}; strings.HasSuffix(path, " ") {
		names = nil // the path is the object itself, and not a field
	}
	for _, value := range s.Enum {
		names = append(names, path+" may be "+value)
	}
	for name, below := range s.Properties {
		if !slices.Contains(s.Required, name) {
			names = append(names, path+"."+name+" may be left out")
		}
		names = append(names, below.promisedNames(path+"."+name)...)
	}
	return slices.Concat(names, s.Items.promisedNames(path+"[]"), s.AdditionalProperties.promisedNames(path+"{}"))
}

// writePromisedNames writes the names of this clone into the list of a version. writePromisedNames returns an error if
// the version is released.
func writePromisedNames(ctx context.Context, repo, version string) error {
	tags, err := versionTags(ctx, repo)
	if err != nil {
		return err
	}
	if tag := releaseTagOfVersion(version, tags); tag != "" {
		return fmt.Errorf("%s is released as %s: what it promises does not change", version, tag)
	}
	names, err := promisedNames(ctx, repo)
	if err != nil {
		return err
	}
	path := filepath.Join(repo, "test", "reference", "testdata", version+".txt")
	return writePage(path, strings.Join(names, "\n")+"\n")
}

// versionTags returns the version tags in the history of a clone.
func versionTags(ctx context.Context, repo string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "git", "-C", repo, "tag", "--merged", "HEAD", "--list", "v*").Output()
	if err != nil {
		return nil, fmt.Errorf("list the tags of %s: %w", repo, err)
	}
	return strings.Fields(string(out)), nil
}

// releaseTagOfVersion returns the first tag that released a version. The result is empty if the version is not
// released. For example, v0.1.0 and v0.1.0-rc.1 release v0.1, and v0.10.0 does not.
func releaseTagOfVersion(version string, tags []string) string {
	i := slices.IndexFunc(tags, func(tag string) bool {
		return tag == version || strings.HasPrefix(tag, version+".") || strings.HasPrefix(tag, version+"-")
	})
	if i < 0 {
		return ""
	}
	return tags[i]
}

// missingLines returns the lines of from that are missing in the list in.
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

// promisesBrokenSinceTag returns the lines that the lists of names and of recorded histories had at a tag and do not
// have now.
func promisesBrokenSinceTag(ctx context.Context, repo, tag string) (broken []string, err error) {
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
