// SPDX-License-Identifier: Apache-2.0
/// Writes all bytes to an open descriptor, such as standard output. If the descriptor is nonblocking, waits until it is
/// writable.
///
/// - Returns: The system's error; nil if all bytes were written.
package func writeAll(_ bytes: UnsafeRawBufferPointer, to descriptor: CInt) -> CInt? {
    var rest = bytes
    while let start = rest.baseAddress, !rest.isEmpty {
        let count = write(descriptor, start, rest.count)
        if count > 0 {
            rest = UnsafeRawBufferPointer(rebasing: rest[count...])
        } else if errno == EAGAIN || errno == EWOULDBLOCK {
            var waiting = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
            _ = poll(&waiting, 1, -1)
        } else if errno != EINTR {
            return errno
        }
    }
    return nil
}
