// Package docs_test answers whether what the documents say of the repository is so: the files, commands, functions and
// tests that they name exist, and the tables that repeat the code repeat it rightly. It does not judge what they
// explain.
package docs_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/activities/kube"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
	"millwright/decide/explain"
	"millwright/provider"
	"millwright/test/pages"
	"millwright/workflows/run"
)

// root is the repository, seen from this folder.
const root = ".."

// foreign matches paths in the documents that are none of this repository: modules, labels and annotations begin with the
// name of a host, and the others are what a build makes, and packages of Go and of Temporal's server.
var foreign = regexp.MustCompile(`^([a-z0-9-]+\.)+(com|io|org|sh)/|^bin/|^\.devstack/?$|^testing/|^service/worker/`)

// document is one file that people read.
type document struct {
	name string // from the root
	text string
	code []string // what stands in backticks
}

// documents returns all that are written by hand.
func documents(t *testing.T) []document {
	var found []document
	var names []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "docs/tutorials/*.md", "docs/how-to/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, path := range paths {
			name, err := filepath.Rel(root, path)
			require.NoError(t, err)
			names = append(names, filepath.ToSlash(name))
		}
	}
	diagram := regexp.MustCompile("(?ms)^```.*?^```$")
	for _, name := range names {
		d := document{name: name, text: read(t, name)}
		for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(diagram.ReplaceAllString(d.text, ""), -1) {
			d.code = append(d.code, span[1])
		}
		found = append(found, d)
	}
	return found
}

func read(t *testing.T, name string) string {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	require.NoError(t, err)
	return string(text)
}

// sources returns every Go file of the repository, by its path from the root.
func sources(t *testing.T) map[string]string {
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin"):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		name, err := filepath.Rel(root, path)
		require.NoError(t, err)
		files[filepath.ToSlash(name)] = read(t, filepath.ToSlash(name))
		return nil
	}))
	return files
}

func TestNamedFilesExist(t *testing.T) {
	path := regexp.MustCompile(`^[\w.-]+(/[\w.*-]+)+/?$|^[\w.-]+/$|^[\w.-]+\.(go|md|mod|yml|yaml|sh)$`)
	for _, d := range documents(t) {
		for _, code := range d.code {
			if !path.MatchString(code) || foreign.MatchString(code) {
				continue
			}
			found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(code)))
			require.NoError(t, err)
			assert.NotEmpty(t, found, "%s names %s", d.name, code)
		}
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	for _, d := range documents(t) {
		for _, found := range link.FindAllStringSubmatch(d.text, -1) {
			assert.FileExists(t, filepath.Join(root, filepath.Dir(d.name), found[1]), d.name)
		}
	}
}

func TestNamedCommandsAreInTheMakefile(t *testing.T) {
	makefile := read(t, "Makefile")
	inText, inBlock := regexp.MustCompile(`^make ([a-z-]+)`), regexp.MustCompile(`(?m)^ {4}make ([a-z-]+)`)
	for _, d := range documents(t) {
		targets := inBlock.FindAllStringSubmatch(d.text, -1)
		for _, code := range d.code {
			targets = append(targets, inText.FindAllStringSubmatch(code, -1)...)
		}
		for _, target := range targets {
			assert.Regexp(t, `(?m)^`+target[1]+`:`, makefile, "%s names make %s", d.name, target[1])
		}
	}
}

func TestNamedFunctionsAndTestsExist(t *testing.T) {
	all := sources(t)
	declared := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?(\w+)[(\[]`)
	for _, text := range all {
		for _, found := range function.FindAllStringSubmatch(text, -1) {
			declared[found[1]] = true
		}
	}
	name := regexp.MustCompile(`^(?:(\w+)\(\)|(Test[A-Z]\w+))$`)
	inFile := regexp.MustCompile("`(\\w+)(?:\\(\\))?`\\s+in\\s+`([\\w./-]+\\.go)`")
	for _, d := range documents(t) {
		for _, code := range d.code {
			if found := name.FindStringSubmatch(code); found != nil {
				assert.True(t, declared[found[1]+found[2]], "%s names %s", d.name, code)
			}
		}
		for _, found := range inFile.FindAllStringSubmatch(d.text, -1) {
			assert.Regexp(t, `\b`+found[1]+`\b`, all[found[2]], "%s says that %s has %s", d.name, found[2], found[1])
		}
	}
}

// An excerpt is a block of Go after a line that ends with its file. A line "// …" in it stands for what is left out.
func TestExcerptsAreInTheirFiles(t *testing.T) {
	block := regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	named := regexp.MustCompile("(?ms)`([\\w./-]+\\.go)`:\n\n```go\n(.*?)^```$")
	for _, d := range documents(t) {
		excerpts := named.FindAllStringSubmatch(d.text, -1)
		assert.Len(
			t,
			excerpts,
			len(block.FindAllString(d.text, -1)),
			"%s has a block of Go that does not name its file",
			d.name,
		)
		for _, excerpt := range excerpts {
			rest := read(t, excerpt[1])
			for _, part := range regexp.MustCompile(`(?m)^\s*// …\n`).Split(excerpt[2], -1) {
				_, after, found := strings.Cut(rest, part)
				assert.True(t, found, "%s: %s has no\n%s", d.name, excerpt[1], part)
				rest = after
			}
		}
	}
}

// The map of the rooms shows every top-level folder that holds Go code, and no other.
func TestMapShowsEveryRoom(t *testing.T) {
	rooms := map[string]bool{}
	for name := range sources(t) {
		if room, _, inside := strings.Cut(name, "/"); inside {
			rooms[room+"/"] = true
		}
	}
	_, section, found := strings.Cut(read(t, "docs/architecture.md"), "\n## Rooms\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var shown []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\S+)` \\|").FindAllStringSubmatch(section, -1) {
		shown = append(shown, row[1])
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(rooms)), shown)
}

func TestTableOfCodesIsThatOfTheCode(t *testing.T) {
	page := read(t, "docs/provider.md")
	_, section, found := strings.Cut(page, "\n## What is done about a code\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var shown, wanted []string
	for _, row := range regexp.MustCompile("(?m)^\\| (\\w+) \\| (`[^|]+`) \\| ").FindAllStringSubmatch(section, -1) {
		for code := range strings.SplitSeq(row[2], ", ") {
			shown = append(shown, code+" "+row[1])
		}
	}
	for _, code := range provider.Codes() {
		wanted = append(wanted, "`"+code.String()+"` "+string(kube.ReactionTo(code)))
	}
	assert.ElementsMatch(t, wanted, shown)
	asked := regexp.MustCompile(`(?m)^func \(p \*Provider\) ([A-Z]\w+)\(`).
		FindAllStringSubmatch(read(t, "activities/cloud/provider.go"), -1)
	require.NotEmpty(t, asked)
	for _, activity := range asked {
		assert.Contains(t, page, "\n| `"+activity[1]+"` | ")
	}
}

func TestEverySearchAttributeIsNamed(t *testing.T) {
	page := read(t, "docs/architecture.md")
	for _, a := range run.Attributes() {
		assert.Contains(t, page, "`"+a.Name+"`")
	}
}

// The index has each ADR once, under one topic, with the title and the status of its head.
func TestEveryDecisionIsInTheIndexWithItsStatus(t *testing.T) {
	var heads []string
	number := regexp.MustCompile(`\[(\d{4})\]`)
	for _, d := range documents(t) {
		file, isDecision := strings.CutPrefix(d.name, "docs/adr/")
		if !isDecision || file == "README.md" {
			continue
		}
		head := regexp.MustCompile(`^# (\d{4}) (.+)\n\nStatus: (accepted|superseded by \d{4})\n`).FindStringSubmatch(d.text)
		if !assert.NotNil(t, head, "%s begins with number, title and status", d.name) {
			continue
		}
		assert.True(t, strings.HasPrefix(file, head[1]+"-"), d.name)
		status := head[3]
		before, _, found := strings.Cut(d.text, "\n## ")
		require.True(t, found, d.name)
		if _, part, is := strings.Cut(before, "\n\nOvertaken in part by "); is {
			part, _, _ = strings.Cut(part, "\n\n")
			var by []string
			for _, overtaker := range number.FindAllStringSubmatch(part, -1) {
				by = append(by, overtaker[1])
			}
			status += "; in part overtaken by " + strings.Join(by, ", ")
		}
		heads = append(heads, "| ["+head[1]+"]("+file+") | "+head[2]+" | "+status+" |")
	}
	assert.ElementsMatch(t, heads, regexp.MustCompile(`(?m)^\| \[.*$`).FindAllString(read(t, "docs/adr/README.md"), -1))
}

// Blocks of commands are runnable, or say why they are not: test/integration/docs runs them.
func TestBlocksOfCommandsCanBeRead(t *testing.T) {
	all, err := pages.All(root)
	require.NoError(t, err)
	run := 0
	for _, name := range all {
		blocks, err := pages.Read(filepath.Join(root, filepath.FromSlash(name)))
		require.NoError(t, err)
		for _, b := range blocks {
			if b.NotRun == "" {
				run++
			}
		}
	}
	assert.Greater(t, run, 30)
}

// Each reason that the condition Blocked can have is in the runbook, and the runbook has no other.
func TestEachReasonOfBlockedIsInTheRunbook(t *testing.T) {
	reasons := map[string]bool{
		explain.Reason(""):                  true,
		vocabulary.ConditionReplacementHeld: true,
		// of a machine
		vocabulary.ReasonClassNotFound:    true,
		vocabulary.ReasonClassInvalid:     true,
		vocabulary.ReasonSecretNotFound:   true,
		vocabulary.ReasonSecretInvalid:    true,
		vocabulary.ReasonSecretNotAllowed: true,
		// of a set
		vocabulary.ReasonTemplateNotFound:      true,
		vocabulary.ReasonPreflightCheckFailed:  true,
		vocabulary.ReasonScaleUpStopped:        true,
		vocabulary.ReasonMachineSetInvalid:     true,
		vocabulary.ReasonMachineCreationFailed: true,
		vocabulary.ReasonFailedDelete:          true,
		// of a deployment
		vocabulary.ReasonInvalid:                  true,
		vocabulary.ReasonProgressDeadlineExceeded: true,
		vocabulary.ReasonExtensionFailed:          true,
		// of a drain
		drain.BlockedByBudget:     true,
		drain.BlockedByProtection: true,
		drain.BlockedByWork:       true,
		drain.BlockedByVolume:     true,
		drain.BlockedByEnding:     true,
		drain.BlockedByNamespace:  true,
		drain.BlockedByError:      true,
	}
	for _, code := range provider.Codes() {
		reasons[code.String()] = true
	}
	for _, found := range regexp.MustCompile(`(?m)^\tBlocked\w+ += "(\w+)"`).FindAllStringSubmatch(read(t, "api/vocabulary/reasons.go"), -1) {
		reasons[found[1]] = true
	}
	_, section, found := strings.Cut(read(t, "docs/runbook.md"), "\n### 1. ")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	sections, others, found := strings.Cut(section, "\n### Others\n")
	require.True(t, found)
	lines := regexp.MustCompile(`(?m)^Reasons: (.+)$`).FindAllStringSubmatch(sections, -1)
	lines = append(lines, regexp.MustCompile("(?m)^\\| (`.+?) \\|").FindAllStringSubmatch(others, -1)...)
	var explained []string
	for _, line := range lines {
		for word := range strings.SplitSeq(line[1], ", ") {
			explained = append(explained, strings.Trim(word, "`"))
		}
	}
	slices.Sort(explained)
	assert.Equal(t, slices.Sorted(maps.Keys(reasons)), slices.Compact(explained))
}

// Each link to a section leads to a section that exists. The name of a section in a link is that which GitHub makes.
func TestLinksLeadToSections(t *testing.T) {
	sections := map[string]map[string]bool{}
	sectionsOf := func(name string) map[string]bool {
		if sections[name] == nil {
			sections[name] = map[string]bool{}
			for _, title := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(read(t, name), -1) {
				words := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(title[1]), "")
				sections[name][strings.ReplaceAll(words, " ", "-")] = true
			}
		}
		return sections[name]
	}
	link := regexp.MustCompile(`\]\(([\w./-]*)#([^)]+)\)`)
	for _, d := range documents(t) {
		for _, found := range link.FindAllStringSubmatch(d.text, -1) {
			page := d.name
			if found[1] != "" {
				page = filepath.ToSlash(filepath.Join(filepath.Dir(d.name), filepath.FromSlash(found[1])))
			}
			assert.True(t, sectionsOf(page)[found[2]], "%s: %s has no section %s", d.name, page, found[2])
		}
	}
}
