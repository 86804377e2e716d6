// Package docs_test checks statements of the documents about the repository: the named files, commands, functions and
// tests exist, and tables that repeat the code agree with the code. Package docs_test does not check explanations.
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

// repoRoot is the path from this folder to the root of the repository.
const repoRoot = ".."

// foreignPathPattern matches paths in the documents that are not paths of this repository. The paths of modules, labels
// and annotations begin with the name of a host. The other paths are files that a build makes, and packages of Go and
// of Temporal's server.
var foreignPathPattern = regexp.MustCompile(
	`^([a-z0-9-]+\.)+(com|io|org|sh)/|^bin/|^\.devstack/?$|^testing/|^service/worker/`,
)

// document is one page of the documentation.
type document struct {
	name      string // path from the root
	text      string
	codeSpans []string // the texts in backticks
}

// readDocuments returns all documents that people write by hand.
func readDocuments(t *testing.T) []document {
	var found []document
	var names []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "docs/tutorials/*.md", "docs/how-to/*.md"} {
		paths, err := filepath.Glob(filepath.Join(repoRoot, pattern))
		require.NoError(t, err)
		for _, path := range paths {
			name, err := filepath.Rel(repoRoot, path)
			require.NoError(t, err)
			names = append(names, filepath.ToSlash(name))
		}
	}
	diagram := regexp.MustCompile("(?ms)^```.*?^```$")
	for _, name := range names {
		d := document{name: name, text: readFile(t, name)}
		for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(diagram.ReplaceAllString(d.text, ""), -1) {
			d.codeSpans = append(d.codeSpans, span[1])
		}
		found = append(found, d)
	}
	return found
}

func readFile(t *testing.T, name string) string {
	text, err := os.ReadFile(filepath.Join(repoRoot, filepath.FromSlash(name)))
	require.NoError(t, err)
	return string(text)
}

// readGoSources returns all Go files of the repository, by path from the root.
func readGoSources(t *testing.T) map[string]string {
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(repoRoot, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != repoRoot && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin"):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		name, err := filepath.Rel(repoRoot, path)
		require.NoError(t, err)
		files[filepath.ToSlash(name)] = readFile(t, filepath.ToSlash(name))
		return nil
	}))
	return files
}

func TestFilesNamedInDocumentsExist(t *testing.T) {
	path := regexp.MustCompile(`^[\w.-]+(/[\w.*-]+)+/?$|^[\w.-]+/$|^[\w.-]+\.(go|md|mod|yml|yaml|sh)$`)
	for _, d := range readDocuments(t) {
		for _, code := range d.codeSpans {
			if !path.MatchString(code) || foreignPathPattern.MatchString(code) {
				continue
			}
			found, err := filepath.Glob(filepath.Join(repoRoot, filepath.FromSlash(code)))
			require.NoError(t, err)
			assert.NotEmpty(t, found, "%s names %s", d.name, code)
		}
	}
}

func TestLinkTargetsExist(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	for _, d := range readDocuments(t) {
		for _, found := range link.FindAllStringSubmatch(d.text, -1) {
			assert.FileExists(t, filepath.Join(repoRoot, filepath.Dir(d.name), found[1]), d.name)
		}
	}
}

func TestMakeTargetsNamedInDocumentsExist(t *testing.T) {
	makefile := readFile(t, "Makefile")
	inText, inBlock := regexp.MustCompile(`^make ([a-z-]+)`), regexp.MustCompile(`(?m)^ {4}make ([a-z-]+)`)
	for _, d := range readDocuments(t) {
		targets := inBlock.FindAllStringSubmatch(d.text, -1)
		for _, code := range d.codeSpans {
			targets = append(targets, inText.FindAllStringSubmatch(code, -1)...)
		}
		for _, target := range targets {
			assert.Regexp(t, `(?m)^`+target[1]+`:`, makefile, "%s names make %s", d.name, target[1])
		}
	}
}

func TestFunctionsAndTestsNamedInDocumentsExist(t *testing.T) {
	all := readGoSources(t)
	declared := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?(\w+)[(\[]`)
	for _, text := range all {
		for _, found := range function.FindAllStringSubmatch(text, -1) {
			declared[found[1]] = true
		}
	}
	name := regexp.MustCompile(`^(?:(\w+)\(\)|(Test[A-Z]\w+))$`)
	inFile := regexp.MustCompile("`(\\w+)(?:\\(\\))?`\\s+in\\s+`([\\w./-]+\\.go)`")
	for _, d := range readDocuments(t) {
		for _, code := range d.codeSpans {
			if found := name.FindStringSubmatch(code); found != nil {
				assert.True(t, declared[found[1]+found[2]], "%s names %s", d.name, code)
			}
		}
		for _, found := range inFile.FindAllStringSubmatch(d.text, -1) {
			assert.Regexp(t, `\b`+found[1]+`\b`, all[found[2]], "%s says that %s has %s", d.name, found[2], found[1])
		}
	}
}

// An excerpt is a block of Go after a line that ends with the name of a file. A line "// …" in the block stands for
// omitted lines.
func TestCodeExcerptsMatchTheirFiles(t *testing.T) {
	block := regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	named := regexp.MustCompile("(?ms)`([\\w./-]+\\.go)`:\n\n```go\n(.*?)^```$")
	for _, d := range readDocuments(t) {
		excerpts := named.FindAllStringSubmatch(d.text, -1)
		assert.Len(
			t,
			excerpts,
			len(block.FindAllString(d.text, -1)),
			"%s has a block of Go that does not name its file",
			d.name,
		)
		for _, excerpt := range excerpts {
			rest := readFile(t, excerpt[1])
			for _, part := range regexp.MustCompile(`(?m)^\s*// …\n`).Split(excerpt[2], -1) {
				_, after, found := strings.Cut(rest, part)
				assert.True(t, found, "%s: %s has no\n%s", d.name, excerpt[1], part)
				rest = after
			}
		}
	}
}

// The map on the architecture page shows every top-level folder that has Go code, and no other folder.
func TestArchitectureMapShowsEveryTopFolder(t *testing.T) {
	rooms := map[string]bool{}
	for name := range readGoSources(t) {
		if room, _, inside := strings.Cut(name, "/"); inside {
			rooms[room+"/"] = true
		}
	}
	_, section, found := strings.Cut(readFile(t, "docs/architecture.md"), "\n## Rooms\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var shown []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\S+)` \\|").FindAllStringSubmatch(section, -1) {
		shown = append(shown, row[1])
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(rooms)), shown)
}

func TestProviderCodeTableMatchesTheCode(t *testing.T) {
	page := readFile(t, "docs/provider.md")
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
		wanted = append(wanted, "`"+code.String()+"` "+string(kube.ReactionToCode(code)))
	}
	assert.ElementsMatch(t, wanted, shown)
	asked := regexp.MustCompile(`(?m)^func \(p \*Activities\) ([A-Z]\w+)\(`).
		FindAllStringSubmatch(readFile(t, "activities/cloud/provider.go"), -1)
	require.NotEmpty(t, asked)
	for _, activity := range asked {
		assert.Contains(t, page, "\n| `"+activity[1]+"` | ")
	}
}

func TestEverySearchAttributeIsDocumented(t *testing.T) {
	page := readFile(t, "docs/architecture.md")
	for _, a := range run.SearchAttributes() {
		assert.Contains(t, page, "`"+a.Name+"`")
	}
}

// The index lists each ADR once, under one topic, with the title and the status from the head of the ADR.
func TestADRIndexListsEveryADRWithItsStatus(t *testing.T) {
	var heads []string
	number := regexp.MustCompile(`\[(\d{4})\]`)
	for _, d := range readDocuments(t) {
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
	assert.ElementsMatch(
		t,
		heads,
		regexp.MustCompile(`(?m)^\| \[.*$`).FindAllString(readFile(t, "docs/adr/README.md"), -1),
	)
}

// Each block of commands can be run, or says why it cannot be run. test/integration/docs runs the blocks.
func TestCommandBlocksCanBeRunOrSayWhyNot(t *testing.T) {
	all, err := pages.ListPages(repoRoot)
	require.NoError(t, err)
	run := 0
	for _, name := range all {
		blocks, err := pages.ReadBlocks(filepath.Join(repoRoot, filepath.FromSlash(name)))
		require.NoError(t, err)
		for _, b := range blocks {
			if b.SkipReason == "" {
				run++
			}
		}
	}
	assert.Greater(t, run, 30)
}

// The runbook lists exactly the reasons that the condition Blocked can have.
func TestRunbookListsEveryBlockedReason(t *testing.T) {
	reasons := map[string]bool{
		explain.ReasonOfBlocker(""):         true,
		vocabulary.ConditionReplacementHeld: true,
		// reasons of a machine
		vocabulary.ReasonClassNotFound:    true,
		vocabulary.ReasonClassInvalid:     true,
		vocabulary.ReasonSecretNotFound:   true,
		vocabulary.ReasonSecretInvalid:    true,
		vocabulary.ReasonSecretNotAllowed: true,
		// reasons of a set
		vocabulary.ReasonTemplateNotFound:      true,
		vocabulary.ReasonPreflightCheckFailed:  true,
		vocabulary.ReasonScaleUpStopped:        true,
		vocabulary.ReasonMachineSetInvalid:     true,
		vocabulary.ReasonMachineCreationFailed: true,
		vocabulary.ReasonFailedDelete:          true,
		vocabulary.ReasonRemediationBackoff:    true,
		vocabulary.ReasonMaxRetryReached:       true,
		// reasons of a deployment
		vocabulary.ReasonInvalid:                  true,
		vocabulary.ReasonProgressDeadlineExceeded: true,
		vocabulary.ReasonExtensionFailed:          true,
		vocabulary.ReasonNotUpdatedInPlace:        true,
		vocabulary.ReasonPolicyInvalid:            true,
		vocabulary.ReasonRolledBack:               true,
		vocabulary.ReasonPinned:                   true,

		vocabulary.ReasonDeploymentRollbackTemplateNotFound: true,
		// reasons of a drain
		drain.BlockedByBudget:      true,
		drain.BlockedByProtection:  true,
		drain.BlockedByCompletion:  true,
		drain.BlockedByVolume:      true,
		drain.BlockedByTermination: true,
		drain.BlockedByNamespace:   true,
		drain.BlockedByError:       true,
	}
	for _, code := range provider.Codes() {
		reasons[code.String()] = true
	}
	for _, found := range regexp.MustCompile(`(?m)^\tBlocked\w+ += "(\w+)"`).FindAllStringSubmatch(readFile(t, "api/vocabulary/reasons.go"), -1) {
		reasons[found[1]] = true
	}
	_, section, found := strings.Cut(readFile(t, "docs/runbook.md"), "\n### 1. ")
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

// Each link to a section leads to an existing section. GitHub derives the anchor of a section from its heading.
func TestSectionLinksLeadToExistingSections(t *testing.T) {
	sections := map[string]map[string]bool{}
	sectionsOf := func(name string) map[string]bool {
		if sections[name] == nil {
			sections[name] = map[string]bool{}
			for _, title := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(readFile(t, name), -1) {
				words := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(title[1]), "")
				sections[name][strings.ReplaceAll(words, " ", "-")] = true
			}
		}
		return sections[name]
	}
	link := regexp.MustCompile(`\]\(([\w./-]*)#([^)]+)\)`)
	for _, d := range readDocuments(t) {
		for _, found := range link.FindAllStringSubmatch(d.text, -1) {
			page := d.name
			if found[1] != "" {
				page = filepath.ToSlash(filepath.Join(filepath.Dir(d.name), filepath.FromSlash(found[1])))
			}
			assert.True(t, sectionsOf(page)[found[2]], "%s: %s has no section %s", d.name, page, found[2])
		}
	}
}
