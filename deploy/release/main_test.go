package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// initRepo makes a Git repository with one commit that contains the given changelog.
func initRepo(t *testing.T, changelog string) string {
	t.Helper()
	repo := t.TempDir()
	runCommand(t, repo, "git", "init", "-q")
	writeFile(t, repo, ".gitignore", "/bin/\n")
	writeFile(t, repo, "docs/changelog.md", changelog)
	commitAll(t, repo)
	return repo
}

func writeFile(t *testing.T, repo, name, text string) {
	t.Helper()
	path := filepath.Join(repo, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

func commitAll(t *testing.T, repo string) {
	t.Helper()
	runCommand(t, repo, "git", "add", ".")
	runCommand(
		t,
		repo,
		"git",
		"-c",
		"user.name=n",
		"-c",
		"user.email=e",
		"-c",
		"commit.gpgSign=false",
		"commit",
		"-q",
		"--allow-empty",
		"-m",
		"changed",
	)
}

func runCommand(t *testing.T, folder string, arguments ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), arguments[0], arguments[1:]...)
	c.Dir = folder
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%v: %s", arguments, out)
	return string(out)
}

func TestCheckRefusesAReleaseBeforeTheBuild(t *testing.T) {
	const good = "# Changelog\n\n## v0.2\n\nNew: much.\n\n## v0.1\n\nAll.\n"
	for name, row := range map[string]struct {
		version, changelog string
		given              func(t *testing.T, repo string)
		says               []string
	}{
		"a version without v":           {version: "0.2.0", says: []string{`"0.2.0" is no version`}},
		"a version of two numbers":      {version: "v0.2", says: []string{`"v0.2" is no version`}},
		"a version with build metadata": {version: "v0.2.0+a", says: []string{`"v0.2.0+a" is no version`}},
		"a version with spaces":         {version: "v0.2.0 ", says: []string{`"v0.2.0 " is no version`}},
		"a tree with a new file": {version: "v0.2.0", says: []string{"the tree has changes", "?? new.go"}, given: func(t *testing.T, repo string) {
			writeFile(t, repo, "new.go", "package new\n")
		}},
		"a version that was made": {version: "v0.2.0", says: []string{"bin/release/v0.2.0 exists"}, given: func(t *testing.T, repo string) {
			writeFile(t, repo, "bin/release/v0.2.0/SHA256SUMS", "")
		}},
		"a version that is another commit": {version: "v0.2.0", says: []string{"v0.2.0 is released: its tag is of commit "}, given: func(t *testing.T, repo string) {
			runCommand(t, repo, "git", "tag", "v0.2.0")
			commitAll(t, repo)
		}},
		"a version without a section":           {version: "v0.2.1", says: []string{"docs/changelog.md has no section with the title v0.2.1"}},
		"a version of an old section":           {version: "v0.1.0", says: []string{`docs/changelog.md has the section "v0.2" above that of v0.1.0`}},
		"changes that no version has":           {version: "v0.2.0", changelog: "## After v0.1\n\nMore.\n\n## v0.2\n\nMuch.\n", says: []string{`has the section "After v0.1" above that of v0.2.0`}},
		"an empty section":                      {version: "v0.2.0", changelog: "## v0.2\n\n## v0.1\n\nAll.\n", says: []string{"docs/changelog.md says nothing about v0.2.0"}},
		"a candidate of a version with no text": {version: "v0.3.0-rc.1", says: []string{"has no section with the title v0.3.0-rc.1 or v0.3.0 or v0.3"}},
		"all at once": {version: "v0.4.0", says: []string{"the tree has changes", "has no section with the title v0.4.0 or v0.4", "v0.4.0 exists"}, given: func(t *testing.T, repo string) {
			writeFile(t, repo, "new.go", "package new\n")
			writeFile(t, repo, "bin/release/v0.4.0/SHA256SUMS", "")
		}},
		"a commit with the tag of the version": {version: "v0.2.0", given: func(t *testing.T, repo string) {
			runCommand(t, repo, "git", "-c", "user.name=n", "-c", "user.email=e", "-c", "tag.gpgSign=false", "tag", "-a", "-m", "it", "v0.2.0")
		}},
		"a candidate": {version: "v0.2.0-rc.1"},
	} {
		t.Run(name, func(t *testing.T) {
			if row.changelog == "" {
				row.changelog = good
			}
			repo := initRepo(t, row.changelog)
			if row.given != nil {
				row.given(t, repo)
			}
			r := &release{version: row.version, repo: repo, progress: io.Discard}
			err := r.checkPreconditions(t.Context())
			if row.says == nil {
				require.NoError(t, err)
				assert.Equal(t, "New: much.", r.notes)
				return
			}
			for _, words := range row.says {
				require.ErrorContains(t, err, words)
			}
		})
	}
}

func TestReleaseNotesHaveNoRelativeLinks(t *testing.T) {
	notes, err := changelogSection(
		"## v0.1\n\nSee [the page](install.md#upgrade), [why](adr/0001-a.md) and [Go](https://go.dev).\n",
		"v0.1.0",
	)
	require.NoError(t, err)
	assert.Equal(t, "See the page, why and [Go](https://go.dev).", notes)
}

func TestParsePlatforms(t *testing.T) {
	all, err := parsePlatforms(allPlatforms)
	require.NoError(t, err)
	assert.Len(t, all, 4)
	_, err = parsePlatforms("linux/amd64,windows/amd64")
	require.EqualError(t, err, `--platforms has "windows/amd64": have linux/amd64,linux/arm64,darwin/amd64,darwin/arm64`)
}

// Each release image has the same programs, paths and user as the image of its Dockerfile.
func TestReleaseImagesMatchTheDockerfiles(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("..", "image", name))
		require.NoError(t, err)
		assert.Contains(t, string(text), "\nUSER "+imageUser+"\n", name)
		assert.Contains(t, string(text), " /etc/ssl/certs/ca-certificates.crt\nCOPY --from=build /out/ /\n", name)
		assert.NotRegexp(t, `(?m)^(ENTRYPOINT|CMD|ENV|EXPOSE|VOLUME|LABEL) `, text, name)
		return string(text)
	}
	built := regexp.MustCompile(`-ldflags "-s -w" -o (/out/\S*) (.+)\n`)
	found := built.FindStringSubmatch(read("Dockerfile"))
	require.NotNil(t, found)
	assert.Equal(t, []string{"/out/", strings.Join(releaseImages()[0].packages, " ")}, found[1:])
	found = built.FindStringSubmatch(read("Dockerfile.provider"))
	require.NotNil(t, found)
	for _, i := range releaseImages()[1:] {
		assert.Equal(t, []string{"/out/" + i.programName, strings.Join(i.packages, " ")}, found[1:])
		assert.FileExists(t, filepath.Join("..", "..", i.moduleFolder, "go.mod"))
	}
}
