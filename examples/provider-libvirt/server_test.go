//go:build integration

package libvirt_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	mockURI      = "test:///default" // URI of the mock driver in libvirt's library
	libvirtdPath = "/usr/sbin/libvirtd"
	nobodyUserID = 65534
)

// requireDaemon installs libvirtd if libvirtd is missing and the test runs as root. If libvirtd is not available,
// requireDaemon skips the test, or fails the test in CI.
func requireDaemon(t *testing.T) {
	t.Helper()
	if err := installDaemon(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI must run this test: %v", err)
		}
		t.Skipf("no libvirtd here: %v", err)
	}
}

var installDaemon = sync.OnceValue(func() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("it needs Linux")
	}
	_, err := os.Stat(libvirtdPath)
	if err == nil {
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w, and only root can install Debian's libvirt-daemon", err)
	}
	for _, arguments := range [][]string{
		{"apt-get", "update", "-q"},
		{"apt-get", "install", "-q", "-y", "--no-install-recommends", "libvirt-daemon"},
	} {
		fmt.Fprintf(os.Stderr, "libvirtd is missing: %v\n", arguments)
		command := exec.Command(arguments[0], arguments[1:]...)
		command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", arguments, err, out)
		}
	}
	return nil
})

// startDaemon starts a libvirtd for this test, and returns the path of the daemon's socket. All files of the daemon are
// in one folder. The daemon does not run as root, because as root it would use /run/libvirt and /var/lib/libvirt.
func startDaemon(t *testing.T, auth string) string {
	t.Helper()
	requireDaemon(t)
	// a path below t.TempDir can be longer than the 107 bytes that a socket path may have
	dir, err := os.MkdirTemp("", "millwright-libvirt-")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	config, socket := filepath.Join(dir, "libvirtd.conf"), filepath.Join(dir, "libvirt-sock")
	text := fmt.Sprintf(
		"unix_sock_dir = %q\nauth_unix_rw = %q\nunix_sock_rw_perms = \"0700\"\nlog_outputs = \"3:stderr\"\n",
		dir,
		auth,
	)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o644))

	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	defer func() { _ = log.Close() }()
	daemon := exec.Command(libvirtdPath, "--config", config, "--pid-file", filepath.Join(dir, "pid"))
	daemon.Stdout, daemon.Stderr = log, log
	daemon.Env = []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + dir,
		"XDG_RUNTIME_DIR=" + dir,
		"XDG_CONFIG_HOME=" + dir,
		"XDG_CACHE_HOME=" + dir,
		"XDG_DATA_HOME=" + dir,
	}
	daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		daemon.SysProcAttr.Credential = &syscall.Credential{Uid: nobodyUserID, Gid: nobodyUserID}
		require.NoError(t, os.Chown(dir, nobodyUserID, nobodyUserID))
	}
	require.NoError(t, daemon.Start())
	t.Cleanup(func() {
		assert.NoError(t, daemon.Process.Signal(syscall.SIGTERM))
		_ = daemon.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("libvirtd:\n%s", said)
		}
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("unix", socket) // the socket file exists before the daemon listens
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, 2*time.Minute, 10*time.Millisecond, "libvirtd does not listen")
	return socket
}

// connectToDaemon connects to a daemon until the end of the test. Without a connection, libvirt's mock loses its
// domains.
func connectToDaemon(t *testing.T, socket string) *libvirt.Libvirt {
	t.Helper()
	client := libvirt.NewWithDialer(dialers.NewLocal(dialers.WithSocket(socket)))
	require.NoError(t, client.ConnectToURI(mockURI))
	t.Cleanup(func() { assert.NoError(t, client.Disconnect()) })
	return client
}
