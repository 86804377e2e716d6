//go:build integration

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const version = "v0.1.0"

// shortCommitLength is the number of characters of a commit that a program prints.
const shortCommitLength = 12

// TestRelease makes a release of this repository's last commit for one platform, twice. TestRelease works in a clone
// without release tags.
func TestRelease(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "millwright")
	runCommand(t, ".", "git", "clone", "--quiet", "../..", repo)
	for tag := range strings.FieldsSeq(runCommand(t, repo, "git", "tag")) {
		runCommand(t, repo, "git", "tag", "--delete", tag)
	}
	const list = "test/reference/testdata/v0.1.txt"
	changelog := func(title string) {
		writeFile(
			t,
			repo,
			"docs/changelog.md",
			"# Changelog\n\n## "+title+"\n\nMade by a test ([why](security.md)).\n\n## v0.0\n\nOld.\n",
		)
		commitAll(t, repo)
	}
	promise := func() {
		runCommand(t, repo, "env", "CGO_ENABLED=0", "GOFLAGS=-trimpath", "go", "run", "./test/reference", "--promise", "v0.1")
	}
	attempt := func(version string) error {
		r := &release{version: version, repo: repo, platforms: []platform{{"linux", runtime.GOARCH}}, progress: os.Stderr}
		return r.run(t.Context())
	}

	changelog("v0.9")
	require.ErrorContains(t, attempt("v0.9.0"), "v0.9 promises nothing: run make promise VERSION=v0.9")

	promise()
	promised, err := os.ReadFile(filepath.Join(repo, list))
	require.NoError(t, err)
	writeFile(t, repo, list, string(promised)+"flag worker --gone bool\n")
	changelog(version)
	require.ErrorContains(
		t,
		attempt(version),
		"the names of this commit are not those that v0.1 promises: run make promise VERSION=v0.1",
	)
	runCommand(t, repo, "git", "tag", "v0.1.0-rc.1")
	err = attempt(version)
	require.ErrorContains(t, err, "TestPromisedNamesStay")
	require.ErrorContains(t, err, "flag worker --gone bool")
	runCommand(t, repo, "git", "tag", "--delete", "v0.1.0-rc.1")
	assert.NoDirExists(t, filepath.Join(repo, "bin", "release", version), "what was refused leaves nothing")

	writeFile(t, repo, list, string(promised))
	commitAll(t, repo)
	require.NoError(t, attempt(version))
	made := filepath.Join(repo, "bin", "release", version)
	first := readContent(t, filepath.Join(made, "SHA256SUMS"))
	require.ErrorContains(t, attempt(version), "exists: delete it")
	left, err := os.ReadDir(filepath.Dir(made))
	require.NoError(t, err)
	assert.Len(t, left, 1, "no room of a build is left")

	t.Run("its files and their checksums", func(t *testing.T) { testReleaseFiles(t, made, first) })
	t.Run("the archives of programs", func(t *testing.T) { testPrograms(t, repo, made) })
	t.Run("the images", func(t *testing.T) { testImages(t, repo, made) })
	t.Run("the lists of modules", func(t *testing.T) { testModuleLists(t, repo, made) })
	t.Run("the chart", func(t *testing.T) {
		files := readTarball(t, filepath.Join(made, "millwright-0.1.0.tgz"))
		assert.Contains(t, string(files["millwright/Chart.yaml"]), "\nversion: 0.1.0\n")
		assert.Contains(t, string(files["millwright/Chart.yaml"]), "appVersion: v0.1.0\n")
		assert.Equal(
			t,
			readContent(t, filepath.Join(repo, "deploy", "chart", "values.yaml")),
			string(files["millwright/values.yaml"]),
		)
		for _, name := range []string{"LICENSE", "NOTICE", "templates/worker.yaml", "files/crds/machine.sapcloud.io_machines.yaml"} {
			assert.NotEmpty(t, files["millwright/"+name], name)
		}
	})
	t.Run("the notes", func(t *testing.T) {
		assert.Equal(
			t,
			"# Millwright v0.1.0\n\nMade by a test (why).\n",
			readContent(t, filepath.Join(made, "release-notes.md")),
		)
	})
	t.Run("a second run gives the same, also when the commit has its tag", func(t *testing.T) {
		require.NoError(t, os.RemoveAll(made))
		runCommand(t, repo, "git", "tag", version)
		require.NoError(t, attempt(version))
		assert.Equal(t, first, readContent(t, filepath.Join(made, "SHA256SUMS")))
	})
}

func readContent(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func platformSuffix() string { return "_" + version + "_linux_" + runtime.GOARCH }

// testReleaseFiles requires that the release has exactly the wanted files, and that SHA256SUMS has their checksums.
func testReleaseFiles(t *testing.T, made, sums string) {
	wanted := []string{
		"SHA256SUMS",
		"release-notes.md",
		"millwright-0.1.0.tgz",
		"millwright_v0.1.0.oci.tar",
		"millwright-provider-incus_v0.1.0.oci.tar",
		"millwright-provider-libvirt_v0.1.0.oci.tar",
		"millwright-provider-incus" + platformSuffix() + ".cdx.json",
		"millwright-provider-libvirt" + platformSuffix() + ".cdx.json",
	}
	for _, name := range []string{workerProgram, bridgeProgram, millwrightProgram} {
		wanted = append(wanted, name+platformSuffix()+".tar.gz", name+platformSuffix()+".cdx.json")
	}
	entries, err := os.ReadDir(made)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		if e.Name() == "SHA256SUMS" {
			continue
		}
		sum := sha256.Sum256([]byte(readContent(t, filepath.Join(made, e.Name()))))
		assert.Contains(t, sums, hex.EncodeToString(sum[:])+"  "+e.Name()+"\n")
	}
	assert.ElementsMatch(t, wanted, names)
	assert.Equal(t, len(wanted)-1, strings.Count(sums, "\n"))
}

// readTarball returns the files of a gzip-compressed archive. readTarball requires that all entries belong to root and
// have the same time.
func readTarball(t *testing.T, path string) map[string][]byte {
	t.Helper()
	compressed, err := gzip.NewReader(bytes.NewReader([]byte(readContent(t, path))))
	require.NoError(t, err)
	return readTar(t, compressed)
}

func readTar(t *testing.T, from io.Reader) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	var at time.Time
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		text, err := io.ReadAll(archive)
		require.NoError(t, err)
		found[header.Name] = text
		assert.Zero(t, header.Uid+header.Gid, header.Name)
		if at.IsZero() {
			at = header.ModTime
		}
		assert.Equal(t, at, header.ModTime, header.Name)
	}
}

// testPrograms requires that each archive has a license and a program that prints its version.
func testPrograms(t *testing.T, repo, made string) {
	head := strings.TrimSpace(runCommand(t, repo, "git", "rev-parse", "HEAD"))
	for _, name := range []string{workerProgram, bridgeProgram, millwrightProgram} {
		found := readTarball(t, filepath.Join(made, name+platformSuffix()+".tar.gz"))
		require.Len(t, found, 3, name)
		assert.Contains(t, string(found["LICENSE"]), "Apache License")
		assert.Contains(t, string(found["NOTICE"]), "machine-controller-manager")
		program := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(program, found[name], 0o700))
		assert.Contains(
			t,
			runCommand(t, ".", program, "--version"),
			name+" version "+version+", commit "+head[:shortCommitLength]+" of ",
		)
	}
}

// testImages requires that each archive is an OCI layout with valid digests and one image for the platform.
func testImages(t *testing.T, repo, made string) {
	for _, i := range releaseImages() {
		folder := t.TempDir()
		archive, err := os.Open(filepath.Join(made, i.name+"_"+version+".oci.tar"))
		require.NoError(t, err)
		for name, text := range readTar(t, archive) {
			if !strings.HasSuffix(name, "/") {
				writeFile(t, folder, name, string(text))
			}
		}
		require.NoError(t, archive.Close())
		outer, err := layout.ImageIndexFromPath(folder)
		require.NoError(t, err)
		require.NoError(t, validate.Index(outer), i.name)
		top, err := outer.IndexManifest()
		require.NoError(t, err)
		require.Len(t, top.Manifests, 1)
		assert.Equal(t, types.OCIImageIndex, top.Manifests[0].MediaType)
		assert.Equal(t, version, top.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
		assert.Equal(t, i.name+":"+version, top.Manifests[0].Annotations["io.containerd.image.name"])
		inner, err := outer.ImageIndex(top.Manifests[0].Digest)
		require.NoError(t, err)
		platforms, err := inner.IndexManifest()
		require.NoError(t, err)
		require.Len(t, platforms.Manifests, 1)
		assert.Equal(t, &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, platforms.Manifests[0].Platform)
		one, err := inner.Image(platforms.Manifests[0].Digest)
		require.NoError(t, err)
		checkImage(t, repo, made, i, one)
	}
}

func checkImage(t *testing.T, repo, made string, i image, one v1.Image) {
	config, err := one.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, "65532:65532", config.Config.User)
	assert.Empty(t, config.Config.Entrypoint)
	assert.Empty(t, config.Config.Cmd)
	assert.Equal(t, runtime.GOARCH, config.Architecture)
	assert.Equal(
		t,
		strings.TrimSpace(runCommand(t, repo, "git", "rev-parse", "HEAD")),
		config.Config.Labels["org.opencontainers.image.revision"],
	)
	layers, err := one.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 2)
	found := readTar(t, mutate.Extract(one))
	certificates := string(found["etc/ssl/certs/ca-certificates.crt"])
	assert.Greater(t, strings.Count(certificates, "-----BEGIN CERTIFICATE-----"), 100)
	var programs []string
	for name := range found {
		if !strings.HasPrefix(name, "etc") {
			programs = append(programs, name)
		}
	}
	if i.programName != "" {
		assert.Equal(t, []string{i.programName}, programs)
		program := filepath.Join(t.TempDir(), i.programName)
		require.NoError(t, os.WriteFile(program, found[i.programName], 0o700))
		assert.Contains(t, runCommand(t, ".", program, "--version"), " version "+version+", commit ")
		return
	}
	assert.ElementsMatch(t, []string{workerProgram, bridgeProgram, millwrightProgram, "probe"}, programs)
	for _, name := range []string{workerProgram, bridgeProgram, millwrightProgram} {
		packed := readTarball(t, filepath.Join(made, name+platformSuffix()+".tar.gz"))
		assert.Equal(
			t,
			sha256.Sum256(packed[name]),
			sha256.Sum256(found[name]),
			"the archive and the image have the same %s",
			name,
		)
	}
}

// testModuleLists requires that each list contains Millwright's version, and the version of the Temporal SDK in go.mod.
func testModuleLists(t *testing.T, repo, made string) {
	required := regexp.MustCompile(`(?m)^\tgo\.temporal\.io/sdk (\S+)$`).
		FindStringSubmatch(readContent(t, filepath.Join(repo, "go.mod")))
	require.NotNil(t, required)
	for _, name := range []string{workerProgram, bridgeProgram, millwrightProgram, "millwright-provider-incus", "millwright-provider-libvirt"} {
		var list struct {
			BOMFormat string `json:"bomFormat"`
			Metadata  struct {
				Component struct{ Version string }
			}
			Components []struct {
				Name, Version string
			}
		}
		require.NoError(
			t,
			json.Unmarshal([]byte(readContent(t, filepath.Join(made, name+platformSuffix()+".cdx.json"))), &list),
		)
		assert.Equal(t, "CycloneDX", list.BOMFormat)
		assert.Equal(t, version, list.Metadata.Component.Version, name)
		found := map[string]string{}
		for _, c := range list.Components {
			found[c.Name] = c.Version
		}
		assert.Equal(t, required[1], found["go.temporal.io/sdk"], name)
		assert.NotEmpty(t, found["std"], name)
		assert.NotContains(
			t,
			readContent(t, filepath.Join(made, name+platformSuffix()+".cdx.json")),
			"..",
			"no module is called by its folder",
		)
		if strings.Contains(name, "provider") {
			assert.Equal(t, version, found[strings.TrimSpace(runCommand(t, repo, "go", "list", "-m"))], name)
		}
	}
}
