package incus

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"strings"
	"time"
)

// preseedTemplate is the configuration of a new server. If the configuration is applied a second time, nothing changes.
// Parameters: HTTPS port, address of the bridge, first and last address of instances, driver of the storage pool, name
// of the network.
//
// An instance with the default profile is a node: a privileged container that may run containers. The node's kubelet
// writes to /proc, /sys and the cgroup hierarchies.
const preseedTemplate = `
config:
  core.https_address: ":%[1]d"
networks:
- name: %[6]s
  type: bridge
  config:
    bridge.external_interfaces: uplink
    ipv4.address: %[2]s/16
    ipv4.dhcp.ranges: %[3]s-%[4]s
    ipv4.nat: "false"
    ipv6.address: none
storage_pools:
- name: default
  driver: %[5]s
profiles:
- name: default
  config:
    security.privileged: "true"
    security.nesting: "true"
    raw.lxc: lxc.mount.auto=proc:rw sys:rw cgroup:rw:force
  devices:
    root: {type: disk, pool: default, path: /}
    eth0: {type: nic, network: %[6]s, name: eth0}
`

// configure configures the server, adds a trusted client and imports the node image.
func (s *Server) configure(ctx context.Context, image nodeImage) error {
	prefix := strings.TrimSuffix(s.Network.BridgeAddress, ".0.1")
	seed := fmt.Sprintf(
		preseedTemplate,
		apiPort,
		s.Network.BridgeAddress,
		prefix+".0.10",
		prefix+".127.250",
		storageDriver(),
		NetworkName,
	)
	if _, err := s.runIncusWithInput(ctx, strings.NewReader(seed), "admin", "init", "--preseed"); err != nil {
		return fmt.Errorf("configure incusd: %w", err)
	}
	if err := s.trustClient(ctx); err != nil {
		return err
	}
	return s.importNodeImage(ctx, image)
}

// storageDriver returns btrfs if this machine supports it, because a new instance is then a snapshot of the image,
// which takes no time and no space. Incus makes the pool in a sparse file of 5 to 30 GiB, on a loop device. Without
// btrfs, storageDriver returns dir, and each instance is a copy of the image.
func storageDriver() string {
	known, _ := os.ReadFile("/proc/filesystems")
	_, err := os.Stat("/dev/loop-control")
	if err == nil && bytes.Contains(known, []byte("\tbtrfs\n")) {
		return "btrfs"
	}
	return "dir"
}

// trustClient makes the client's key and certificate, and adds the certificate to the server's trust store. trustClient
// does nothing if the certificate exists.
func (s *Server) trustClient(ctx context.Context) error {
	if _, err := os.Stat(s.ClientCertFile); !errors.Is(err, fs.ErrNotExist) {
		return err // an existing certificate is trusted already
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the client's key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "millwright"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(10, 0, 0), // ten years, which is longer than a local stack exists
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("make the client's certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("make the client's key: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	if _, err := s.runIncusWithInput(
		ctx,
		bytes.NewReader(text),
		"config",
		"trust",
		"add-certificate",
		"/dev/stdin",
		"--name",
		"millwright",
	); err != nil {
		return fmt.Errorf("trust the client: %w", err)
	}
	keyText := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	return errors.Join(os.WriteFile(s.ClientKeyFile, keyText, 0o600), os.WriteFile(s.ClientCertFile, text, 0o600))
}

// importNodeImage imports the node image, unless the server has the image with the same key. A property of the imported
// image stores the key.
func (s *Server) importNodeImage(ctx context.Context, image nodeImage) error {
	const property = "millwright"
	has, err := s.RunIncus(ctx, "image", "get-property", NodeImageAlias, property)
	if err == nil && strings.TrimSpace(string(has)) == image.recipeKey {
		return nil
	}
	if err == nil {
		if _, err := s.RunIncus(ctx, "image", "delete", NodeImageAlias); err != nil {
			return fmt.Errorf("remove the former image of nodes: %w", err)
		}
	}
	file, err := os.Open(image.path)
	if err != nil {
		return fmt.Errorf("read the image of nodes: %w", err)
	}
	defer func() { _ = file.Close() }()
	// Standard input passes the image, because the file does not exist in the server's mount namespace.
	arguments := []string{"image", "import", "/dev/stdin", "--alias", NodeImageAlias, property + "=" + image.recipeKey}
	if _, err := s.runIncusWithInput(ctx, file, arguments...); err != nil {
		return fmt.Errorf("import the image of nodes: %w", err)
	}
	return nil
}
