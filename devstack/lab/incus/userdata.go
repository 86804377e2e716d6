package incus

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"
)

//go:embed user-data.sh
var userDataText string

// Cluster is what a machine must know of the cluster that it joins.
type Cluster struct {
	Server  string // URL of the API server, as machines reach it
	CA      string // certificates of the authorities that have signed the API server's certificate (PEM)
	Project string // project of Incus with the machines; empty means "default"
}

// UserData returns user data with which a machine of the nodes' image joins a cluster: a shell script. It still has the
// placeholders <<MACHINE_NAME>> and <<BOOTSTRAP_TOKEN>>, which Millwright's worker fills in (docs/provider.md, "User
// data"). The instance must have the name of the machine.
func UserData(c Cluster) (string, error) {
	if c.Project == "" {
		c.Project = "default"
	}
	c.CA = strings.TrimSpace(c.CA)
	parsed, err := template.New("user-data.sh").Option("missingkey=error").Parse(userDataText)
	if err != nil {
		return "", fmt.Errorf("read the template of user data: %w", err)
	}
	var out strings.Builder
	if err := parsed.Execute(&out, c); err != nil {
		return "", fmt.Errorf("fill in user data: %w", err)
	}
	return out.String(), nil
}
