package component

import (
	"crypto"
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
	"net"
	"os"
	"time"
)

// validFor is longer than any local stack lives.
const validFor = 10 * 365 * 24 * time.Hour

// writeCertificates writes what a stack with real machines needs, which the API server does not make for itself: a CA, unless it
// exists, a certificate of the API server for its address on the machines' network, too, and one with which it calls kubelets.
func writeCertificates(l Layout, network Network) error {
	ca, err := writeAuthority(l)
	if err != nil {
		return err
	}
	server := certificate("kube-apiserver", x509.ExtKeyUsageServerAuth)
	server.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	server.IPAddresses = []net.IP{net.ParseIP(loopback), net.ParseIP(network.Host), net.ParseIP("10.96.0.1")} // the first service
	if err := ca.issue(server, l.authority(), l.Path("pki", "apiserver.key")); err != nil {
		return fmt.Errorf("make the API server's certificate: %w", err)
	}
	client := certificate("kube-apiserver-kubelet-client", x509.ExtKeyUsageClientAuth)
	client.Subject.Organization = []string{masters}
	if err := ca.issue(client, l.kubeletClient(), l.kubeletClientKey()); err != nil {
		return fmt.Errorf("make the certificate for calls of kubelets: %w", err)
	}
	return nil
}

// WriteTemporalCertificates writes a new CA and what it signs: the certificate of Temporal's server, which its own workers and its UI
// use as clients too, and that of our processes. Who writes them again replaces the CA: a server that is started after that takes no
// other clients.
func WriteTemporalCertificates(l Layout) error {
	ca, err := newAuthority("temporal-ca", l.TemporalAuthority(), l.Path("pki", "temporal-ca.key"))
	if err != nil {
		return err
	}
	server := certificate("temporal", x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	server.DNSNames, server.IPAddresses = []string{"localhost"}, []net.IP{net.ParseIP(loopback)}
	if err := ca.issue(server, l.temporalServer(), l.temporalServerKey()); err != nil {
		return fmt.Errorf("make Temporal's certificate: %w", err)
	}
	if err := ca.issue(certificate("millwright", x509.ExtKeyUsageClientAuth), l.TemporalClient(), l.TemporalClientKey()); err != nil {
		return fmt.Errorf("make the certificate of Temporal's clients: %w", err)
	}
	return nil
}

// writeClusterAPICertificates writes a new CA, and the certificate with which Cluster API serves webhooks.
func writeClusterAPICertificates(l Layout) error {
	ca, err := newAuthority("cluster-api-ca", l.ClusterAPIAuthority(), l.Path("pki", "cluster-api-ca.key"))
	if err != nil {
		return err
	}
	server := certificate("cluster-api", x509.ExtKeyUsageServerAuth)
	server.IPAddresses = []net.IP{net.ParseIP(loopback)}
	folder := Layout(l.clusterAPIWebhooks())
	if err := ca.issue(server, folder.Path("tls.crt"), folder.Path("tls.key")); err != nil {
		return fmt.Errorf("make the certificate of Cluster API's webhooks: %w", err)
	}
	return nil
}

// issuer is a CA.
type issuer struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// writeAuthority returns the stack's CA; it makes one if there is none.
func writeAuthority(l Layout) (issuer, error) {
	if _, err := os.Stat(l.Authority()); errors.Is(err, fs.ErrNotExist) {
		return newAuthority("devstack", l.Authority(), l.authorityKey())
	}
	return readIssuer(l.Authority(), l.authorityKey())
}

// newAuthority makes a CA of this name and writes it.
func newAuthority(name, certificatePath, keyPath string) (issuer, error) {
	template := certificate(name)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	if err := (issuer{}).issue(template, certificatePath, keyPath); err != nil {
		return issuer{}, fmt.Errorf("make CA %s: %w", name, err)
	}
	return readIssuer(certificatePath, keyPath)
}

func readIssuer(certificatePath, keyPath string) (issuer, error) {
	parsed, err := readPEM(certificatePath, x509.ParseCertificate)
	if err != nil {
		return issuer{}, fmt.Errorf("read the CA: %w", err)
	}
	key, err := readPEM(keyPath, x509.ParseECPrivateKey)
	if err != nil {
		return issuer{}, fmt.Errorf("read the CA's key: %w", err)
	}
	return issuer{parsed, key}, nil
}

func certificate(name string, usage ...x509.ExtKeyUsage) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes([]byte(rand.Text())),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour), // a machine's clock may be behind
		NotAfter:     time.Now().Add(validFor),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  usage,
	}
}

// issue makes a key and its certificate, followed by the issuer's. The zero issuer makes one that signs itself.
func (i issuer) issue(template *x509.Certificate, certificatePath, keyPath string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	parent, signer := i.certificate, i.key
	if parent == nil {
		parent, signer = template, key
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	if i.certificate != nil {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.certificate.Raw})...)
	}
	if err := os.WriteFile(keyPath, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(certificatePath, chain, 0o600)
}

// readPEM parses the first block of a file.
func readPEM[T any](path string, parse func([]byte) (T, error)) (T, error) {
	var none T
	text, err := os.ReadFile(path)
	if err != nil {
		return none, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return none, fmt.Errorf("%s has no PEM block", path)
	}
	return parse(block.Bytes)
}
