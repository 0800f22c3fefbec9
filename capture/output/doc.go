// Package output makes the files that unspool writes. All of them go through it, as unspool often runs as
// root, in directories where others can put links, FIFOs and files in the way.
//
// A [Place] is an open directory and a name in it. [Find] looks for it once, before there is anything to
// write; what happens to the path afterwards changes nothing. [Place.Create] makes a file under a temporary
// name in that directory (O_EXCL, O_NOFOLLOW), and [File.Keep] or [File.KeepOld] renames it into place.
// Nothing is ever written to a file that is there already, and no link is followed by opening or renaming.
//
// The user is who runs unspool: the effective user or, when that is root and SUDO_UID is set, the user of
// sudo. Root and the user are trusted, nobody else is.
//
//   - Links in the directory part are followed if root or the user owns them, at most 40.
//   - A link as the last component is followed if the user owns it and its directory, and nobody else but
//     root may write that directory. It is followed once: a target that is a link again is refused. Under
//     sudo, root's links and directories are the user's as well.
//   - There must be no file of that name, or a regular file that root or the user owns.
//   - For root, the directory must belong to root or the user, and nobody else may write it unless it is
//     sticky. For others the permissions that the kernel checks are enough.
//   - A group may write a directory like its owner if it is private: it bears the name of the user or root,
//     has no other members in /etc/group, is nobody else's primary group in /etc/passwd, and the directory
//     has no access control list.
//   - /dev/stdout, /dev/stderr, /dev/fd/N and /proc/self/fd/N, by these names, are descriptors that were
//     handed to unspool. They are duplicated and written to as they are, whatever is behind them. So is "-",
//     standard output. /dev/null and /dev/full can be written to as well, once they are open and proven to be
//     these devices.
//
// Files have mode 0600 and, under sudo, belong to the user: a profile tells what other users' processes did.
package output
