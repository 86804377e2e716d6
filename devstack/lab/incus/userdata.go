package incus

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"
)

//go:embed user-data.sh
var userDataTemplate string

// JoinConfig has the data with which a machine joins a cluster.
type JoinConfig struct {
	Server  string // the API server's URL for machines
	CA      string // PEM certificates of the CAs that sign the API server's certificate
	Project string // Incus project of the machines; empty means "default"
}

// UserData returns user data: a shell script with which a machine of the node image joins the cluster. The script
// contains the placeholders <<MACHINE_NAME>> and <<BOOTSTRAP_TOKEN>>, which Millwright's worker replaces
// (docs/provider.md, "User data"). The instance must have the machine's name.
func UserData(c JoinConfig) (string, error) {
	if c.Project == "" {
		c.Project = "default"
	}
	c.CA = strings.TrimSpace(c.CA)
	parsed, err := template.New("user-data.sh").Option("missingkey=error").Parse(userDataTemplate)
	if err != nil {
		return "", fmt.Errorf("read the template of user data: %w", err)
	}
	var out strings.Builder
	if err := parsed.Execute(&out, c); err != nil {
		return "", fmt.Errorf("fill in user data: %w", err)
	}
	return out.String(), nil
}
