package parts

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"millwright/devstack/authority"
	"millwright/devstack/component"
	"millwright/devstack/lab/incus"
)

// The paths of the stack's CA. A stack with real machines needs a CA, which signs the certificates of the API server
// and of kubelets.
func caCertificatePath(l component.StackFolder) string { return l.Path("pki", "ca.crt") }
func caKeyPath(l component.StackFolder) string         { return l.Path("pki", "ca.key") }

// kubeletClientCertificatePath is the path of the API server's client certificate for calls to kubelets.
func kubeletClientCertificatePath(l component.StackFolder) string {
	return l.Path("pki", "kubelet-client.crt")
}

func kubeletClientKeyPath(l component.StackFolder) string { return l.Path("pki", "kubelet-client.key") }

// writeCertificates writes the certificates that a stack with real machines needs and the API server does not make: a
// CA (unless it exists), a certificate of the API server with its address on the machines' network, and the API
// server's client certificate for calls to kubelets.
func writeCertificates(l component.StackFolder, network incus.Network) error {
	ca, err := ensureCA(l)
	if err != nil {
		return err
	}
	server := authority.CertificateTemplate("kube-apiserver", x509.ExtKeyUsageServerAuth)
	server.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	// 10.96.0.1 is the cluster IP of the Service kubernetes.
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(network.HostAddress), net.ParseIP("10.96.0.1")}
	if err := ca.IssueCertificate(server, l.APIServerCertificateFile(), l.Path("pki", "apiserver.key")); err != nil {
		return fmt.Errorf("make the API server's certificate: %w", err)
	}
	client := authority.CertificateTemplate("kube-apiserver-kubelet-client", x509.ExtKeyUsageClientAuth)
	client.Subject.Organization = []string{"system:masters"}
	if err := ca.IssueCertificate(client, kubeletClientCertificatePath(l), kubeletClientKeyPath(l)); err != nil {
		return fmt.Errorf("make the certificate for calls of kubelets: %w", err)
	}
	return nil
}

// ensureCA returns the stack's CA. ensureCA makes the CA if none exists.
func ensureCA(l component.StackFolder) (authority.Authority, error) {
	if _, err := os.Stat(caCertificatePath(l)); errors.Is(err, fs.ErrNotExist) {
		return authority.New("devstack", caCertificatePath(l), caKeyPath(l))
	}
	return authority.Read(caCertificatePath(l), caKeyPath(l))
}
