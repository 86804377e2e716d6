package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// runProgram runs a program in a folder and returns its standard output. An error contains standard output and standard
// error.
func runProgram(
	ctx context.Context,
	folder string,
	environment []string,
	program string,
	arguments ...string,
) (string, error) {
	c := exec.CommandContext(ctx, program, arguments...)
	c.Dir, c.Env = folder, append(os.Environ(), environment...)
	var out, messages strings.Builder
	c.Stdout, c.Stderr = &out, &messages
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(c.Args, " "), err, out.String(), messages.String())
	}
	return strings.TrimSpace(out.String()), nil
}

func runGit(ctx context.Context, repo string, arguments ...string) (string, error) {
	return runProgram(ctx, repo, nil, "git", arguments...)
}

// checkPreconditions checks before the build whether the release must be refused. The error contains all reasons.
func (r *release) checkPreconditions(ctx context.Context) error {
	if semver.Canonical(r.version) != r.version {
		return fmt.Errorf(
			"%q is no version: a release has a semantic version with a v before it, such as v0.1.0 or v0.1.0-rc.1",
			r.version,
		)
	}
	var refused []error
	if _, err := os.Stat(r.outputFolder()); err == nil {
		refused = append(refused, fmt.Errorf("%s exists: delete it to make the release again", r.outputFolder()))
	}
	changes, err := runGit(ctx, r.repo, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		refused = append(refused, fmt.Errorf("the tree has changes: commit them or take them back\n%s", changes))
	}
	if r.commit, err = runGit(ctx, r.repo, "rev-parse", "HEAD"); err != nil {
		return err
	}
	if r.tag, err = runGit(ctx, r.repo, "tag", "--list", r.version); err != nil {
		return err
	}
	if r.tag != "" {
		commit, err := runGit(ctx, r.repo, "rev-parse", r.tag+"^{commit}")
		if err != nil {
			return err
		}
		if commit != r.commit {
			refused = append(
				refused,
				fmt.Errorf("%s is released: its tag is of commit %s, and HEAD is %s", r.version, commit, r.commit),
			)
		}
	}
	text, err := os.ReadFile(filepath.Join(r.repo, "docs", "changelog.md"))
	if err != nil {
		return fmt.Errorf("read the changelog: %w", err)
	}
	if r.notes, err = changelogSection(string(text), r.version); err != nil {
		refused = append(refused, err)
	}
	seconds, err := runGit(ctx, r.repo, "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	number, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("read the time of the commit: %w", err)
	}
	r.commitTime = time.Unix(number, 0).UTC()
	return errors.Join(refused...)
}

// changelogTitles returns the titles that a version's section in the changelog may have. For v0.2.0 and its release
// candidates, the title is v0.2.0 or v0.2, and for v0.2.1 it is v0.2.1.
func changelogTitles(version string) []string {
	all := []string{version}
	final := strings.TrimSuffix(version, semver.Prerelease(version))
	if final != version {
		all = append(all, final)
	}
	if minor := semver.MajorMinor(version); final == minor+".0" {
		all = append(all, minor)
	}
	return all
}

// markdownLinkPattern matches a Markdown link to a page of the clone. Release notes are read outside of the clone,
// where the link would be broken.
var markdownLinkPattern = regexp.MustCompile(`\[([^\]]+)\]\([^):]+\)`)

// changelogSection returns the section of a version in the changelog. The section must be the first section of the
// file.
func changelogSection(changelog, version string) (string, error) {
	sections := strings.Split("\n"+changelog, "\n## ")[1:]
	for i, s := range sections {
		title, text, _ := strings.Cut(s, "\n")
		if !slices.Contains(changelogTitles(version), title) {
			continue
		}
		if i > 0 {
			first, _, _ := strings.Cut(sections[0], "\n")
			return "", fmt.Errorf(
				"docs/changelog.md has the section %q above that of %s: what it lists belongs to a version",
				first,
				version,
			)
		}
		if text = strings.TrimSpace(text); text == "" {
			return "", fmt.Errorf("docs/changelog.md says nothing about %s", version)
		}
		return markdownLinkPattern.ReplaceAllString(text, "$1"), nil
	}
	return "", fmt.Errorf(
		"docs/changelog.md has no section with the title %s",
		strings.Join(changelogTitles(version), " or "),
	)
}

// cloneCommit clones the commit into r.cloneFolder, and deletes the version's tag in that clone. The content of a
// release therefore does not depend on whether its commit is already tagged.
func (r *release) cloneCommit(ctx context.Context) error {
	if _, err := runGit(ctx, r.repo, "clone", "--quiet", ".", r.cloneFolder); err != nil {
		return err
	}
	if r.tag == "" {
		return nil
	}
	_, err := runGit(ctx, r.cloneFolder, "tag", "--delete", r.version)
	return err
}

// checkPromisedNames refuses a version without a list of promised names or histories. checkPromisedNames also refuses a
// version that lacks a name that an earlier version promised, and the first release of a minor version if its names
// differ from the promised names. checkPromisedNames tags the commit of r.cloneFolder for the modules of the images,
// because the go command reads a module's version from these tags.
func (r *release) checkPromisedNames(ctx context.Context) error {
	minor := semver.MajorMinor(r.version)
	list := "test/reference/testdata/" + minor + ".txt"
	for _, name := range []string{list, "workflows/testdata/replay/" + minor + ".sum"} {
		if _, err := os.Stat(filepath.Join(r.cloneFolder, name)); err != nil {
			return fmt.Errorf("%s promises nothing: run make promise VERSION=%s and commit what it writes", minor, minor)
		}
	}
	earlier, err := runGit(ctx, r.cloneFolder, "tag", "--merged", "HEAD", "--list", minor+".*", minor+"-*")
	if err != nil {
		return err
	}
	if earlier == "" {
		if _, err := runProgram(
			ctx,
			r.cloneFolder,
			r.goEnvironment(),
			"go",
			"run",
			"./test/reference",
			"--promise",
			minor,
		); err != nil {
			return err
		}
		changed, err := runGit(ctx, r.cloneFolder, "diff", "--unified=0", "--", list)
		if err != nil {
			return err
		}
		if changed != "" {
			return fmt.Errorf(
				"the names of this commit are not those that %s promises: run make promise VERSION=%s and commit what it writes\n%s",
				minor,
				minor,
				changed,
			)
		}
	}
	if _, err := runProgram(
		ctx,
		r.cloneFolder,
		r.goEnvironment(),
		"go", "test", "-count=1", "-run=^(TestPromisedNamesStay|TestReleasedNamesAreStillPromised)$", "./test/reference",
	); err != nil {
		return err
	}
	for _, i := range releaseImages() {
		if _, err := runGit(
			ctx,
			r.cloneFolder,
			"-c",
			"tag.gpgSign=false",
			"tag",
			path.Join(i.moduleFolder, r.version),
		); err != nil {
			return err
		}
	}
	return nil
}
