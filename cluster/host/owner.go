package host

import "os"

// Own records that what is in a directory must end with this process.
func Own(dir string) error {
	pid := os.Getpid()
	started, err := startTime(pid)
	if err != nil {
		return err
	}
	return owner(dir).remember(identity{pid, started})
}

// Abandoned reports whether the process that owned a directory ([Own]) has ended without
// removing it: it was killed.
func Abandoned(dir string) bool {
	p := owner(dir)
	_, err := os.Stat(p.file())
	return err == nil && p.PID() == 0
}

// Owner returns the process that owns a directory, and runs; zero if there is none, or it is this one.
func Owner(dir string) int {
	if pid := owner(dir).PID(); pid != os.Getpid() {
		return pid
	}
	return 0
}

func owner(dir string) *process { return newProcess(dir, "owner") }
