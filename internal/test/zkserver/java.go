package zkserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// debianJars is the directory of the jar files in Debian's packages.
const debianJars = "/usr/share/java"

// ErrNotInstalled is returned if ZooKeeper is not installed.
var ErrNotInstalled = errors.New("no ZooKeeper server found: set ZOOKEEPER_HOME to an unpacked release, " +
	"or install Debian's package with scripts/install-zookeeper.sh")

// ErrNoJava is returned if Java is not installed.
var ErrNoJava = errors.New("no java found: install default-jre-headless, or set JAVA_HOME")

// classpath returns the class path of ZooKeeper in ZOOKEEPER_HOME, or else of Debian's package.
func classpath(getenv func(string) string) (string, error) {
	if home := getenv("ZOOKEEPER_HOME"); home != "" {
		jars, _ := filepath.Glob(filepath.Join(home, "lib", "*.jar"))
		core, _ := filepath.Glob(filepath.Join(home, "lib", "zookeeper-[0-9]*.jar"))
		if len(core) == 0 {
			return "", fmt.Errorf("%w (ZOOKEEPER_HOME is %s, which has no lib/zookeeper-*.jar)", ErrNotInstalled, home)
		}
		return strings.Join(jars, ":"), nil
	}
	core := filepath.Join(debianJars, "zookeeper.jar")
	if _, err := os.Stat(core); err != nil {
		return "", ErrNotInstalled
	}
	// The manifest of Debian's jar names its dependencies, except a logging backend and some that TLS needs.
	jars := []string{core}
	for _, name := range []string{"slf4j-simple", "netty-codec", "netty-resolver", "netty-transport-native-unix-common"} {
		jars = append(jars, filepath.Join(debianJars, name+".jar"))
	}
	return strings.Join(jars, ":"), nil
}

func javaCommand(getenv func(string) string) (string, error) {
	if home := getenv("JAVA_HOME"); home != "" {
		if path := filepath.Join(home, "bin", "java"); isExecutable(path) {
			return path, nil
		}
	}
	path, err := exec.LookPath("java")
	if err != nil {
		return "", ErrNoJava
	}
	return path, nil
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}
