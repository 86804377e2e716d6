package incus

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// writeOCIImage writes an OCI image with only one program as an archive that containerd can import.
func writeOCIImage(archive, name, program, at string) error {
	text, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("make image %s: %w", name, err)
	}
	layer, err := tarArchive(tarFile{strings.TrimPrefix(at, "/"), text})
	if err != nil {
		return fmt.Errorf("make image %s: %w", name, err)
	}
	files, err := ociLayoutFiles(name, at, layer)
	if err != nil {
		return fmt.Errorf("make image %s: %w", name, err)
	}
	whole, err := tarArchive(files...)
	if err != nil {
		return fmt.Errorf("make image %s: %w", name, err)
	}
	if err := os.WriteFile(archive, whole, 0o644); err != nil {
		return fmt.Errorf("make image %s: %w", name, err)
	}
	return nil
}

// ociLayoutFiles returns the files of an image in the OCI layout.
func ociLayoutFiles(name, entrypoint string, layer []byte) ([]tarFile, error) {
	const types = "application/vnd.oci.image."
	var files []tarFile
	add := func(kind string, blob []byte) map[string]any {
		files = append(files, tarFile{"blobs/sha256/" + blobDigest(blob), blob})
		return map[string]any{"mediaType": types + kind, "digest": "sha256:" + blobDigest(blob), "size": len(blob)}
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{entrypoint}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + blobDigest(layer)}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": types + "manifest.v1+json",
		"config": add("config.v1+json", config),
		"layers": []any{add("layer.v1.tar", layer)},
	})
	if err != nil {
		return nil, err
	}
	entry := add("manifest.v1+json", manifest)
	entry["annotations"] = map[string]string{"io.containerd.image.name": name}
	index, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": types + "index.v1+json", "manifests": []any{entry},
	})
	if err != nil {
		return nil, err
	}
	return append(
		files,
		tarFile{"index.json", index},
		tarFile{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
	), nil
}

type tarFile struct {
	name    string
	content []byte
}

func tarArchive(files ...tarFile) ([]byte, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, f := range files {
		if err := archive.WriteHeader(&tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.content))}); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), archive.Close()
}
