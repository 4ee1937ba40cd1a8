// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct AddressBytesTests {
    @Test func bytesAreThoseOfTheText() throws {
        guard case .v4(let four) = try SocketAddress(ipAddress: "10.1.2.254", port: 80),
            case .v6(let six) = try SocketAddress(ipAddress: "2001:db8::17:ff", port: 80)
        else {
            Issue.record("another kind of address")
            return
        }
        #expect(four.bytes == [10, 1, 2, 254])
        #expect(six.bytes == [0x20, 0x01, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x17, 0, 0xFF])
    }
}
