package component

import (
	"crypto/x509"
	"fmt"
	"net"

	"millwright/devstack/authority"
)

// WriteTemporalCertificates writes a new CA and two certificates signed by this CA: one for Temporal's server, its
// internal workers and its UI, and one for Millwright's processes. A second call replaces the CA. A server that starts
// after the second call accepts only clients with the new certificates.
func WriteTemporalCertificates(l StackFolder) error {
	ca, err := authority.New("temporal-ca", l.TemporalCACertificateFile(), l.Path("pki", "temporal-ca.key"))
	if err != nil {
		return err
	}
	server := authority.CertificateTemplate("temporal", x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	server.DNSNames, server.IPAddresses = []string{"localhost"}, []net.IP{net.ParseIP(loopbackAddress)}
	if err := ca.IssueCertificate(server, l.temporalServerCertificateFile(), l.temporalServerKeyFile()); err != nil {
		return fmt.Errorf("make Temporal's certificate: %w", err)
	}
	if err := ca.IssueCertificate(
		authority.CertificateTemplate("millwright", x509.ExtKeyUsageClientAuth),
		l.TemporalClientCertificateFile(),
		l.TemporalClientKeyFile(),
	); err != nil {
		return fmt.Errorf("make the certificate of Temporal's clients: %w", err)
	}
	return nil
}

// writeClusterAPICertificates writes a new CA and the certificate of Cluster API's webhooks.
func writeClusterAPICertificates(l StackFolder) error {
	ca, err := authority.New("cluster-api-ca", l.ClusterAPICACertificateFile(), l.Path("pki", "cluster-api-ca.key"))
	if err != nil {
		return err
	}
	server := authority.CertificateTemplate("cluster-api", x509.ExtKeyUsageServerAuth)
	server.IPAddresses = []net.IP{net.ParseIP(loopbackAddress)}
	folder := StackFolder(l.clusterAPIWebhooksFolder())
	if err := ca.IssueCertificate(server, folder.Path("tls.crt"), folder.Path("tls.key")); err != nil {
		return fmt.Errorf("make the certificate of Cluster API's webhooks: %w", err)
	}
	return nil
}
