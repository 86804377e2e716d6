// Package authority creates the CAs and certificates of a local stack and writes them to files.
package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"time"
)

// Authority is a CA with its private key.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// New makes a CA with the name and writes its certificate and key to the files.
func New(name, certificatePath, keyPath string) (Authority, error) {
	template := CertificateTemplate(name)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	if err := (Authority{}).IssueCertificate(template, certificatePath, keyPath); err != nil {
		return Authority{}, fmt.Errorf("make CA %s: %w", name, err)
	}
	return Read(certificatePath, keyPath)
}

// Read reads the files of a CA that New wrote.
func Read(certificatePath, keyPath string) (Authority, error) {
	parsed, err := ReadPEM(certificatePath, x509.ParseCertificate)
	if err != nil {
		return Authority{}, fmt.Errorf("read the CA: %w", err)
	}
	key, err := ReadPEM(keyPath, x509.ParseECPrivateKey)
	if err != nil {
		return Authority{}, fmt.Errorf("read the CA's key: %w", err)
	}
	return Authority{parsed, key}, nil
}

// CertificateTemplate returns a certificate template with the name, for IssueCertificate. The certificate is valid for
// ten years, which is longer than any local stack exists.
func CertificateTemplate(name string, usage ...x509.ExtKeyUsage) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes([]byte(rand.Text())),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour), // the clock of another computer may be up to an hour behind
		NotAfter:     time.Now().AddDate(10, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  usage,
	}
}

// IssueCertificate makes a key and a certificate and writes both. The certificate's file also contains the CA's
// certificate, as the second PEM block. The zero Authority makes a self-signed certificate.
func (a Authority) IssueCertificate(template *x509.Certificate, certificatePath, keyPath string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	parent, signer := a.certificate, a.key
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
	if a.certificate != nil {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})...)
	}
	if err := os.WriteFile(
		keyPath,
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
		0o600,
	); err != nil {
		return err
	}
	return os.WriteFile(certificatePath, chain, 0o600)
}

// ReadPEM parses the first PEM block of a file.
func ReadPEM[T any](path string, parse func([]byte) (T, error)) (T, error) {
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
