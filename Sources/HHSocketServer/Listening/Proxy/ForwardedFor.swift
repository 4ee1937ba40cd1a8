// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The client that the `X-Forwarded-For` of a request names.
struct ForwardedFor: Hashable, Sendable {
    /// The client's address; nil if the field has no valid one.
    var client: SocketAddress?
    /// The element at which reading has stopped, because it is not an address.
    var malformed: String?

    /// Reads the field from its end, as each proxy appends the address that it sees.
    ///
    /// - Parameters:
    ///   - values: The values of all fields of that name, in order.
    ///   - proxies: The networks of proxies, whose entries are trusted.
    init(_ values: [String], through proxies: [IPNetwork]) {
        for value in values.reversed() {
            for element in value.split(separator: ",").reversed() {
                let text = element.trimmed
                if text.isEmpty { continue }
                guard let address = Self.address(text) else {
                    self.malformed = String(text)
                    return
                }
                self.client = address
                guard proxies.contains(address) else { return }
            }
        }
    }

    /// Reads an address, which may have a port; one of IPv6 then has brackets, and may have them without.
    private static func address(_ text: Substring) -> SocketAddress? {
        if text.first == "[" {
            guard let end = text.firstIndex(of: "]") else { return nil }
            let host = text[text.index(after: text.startIndex)..<end]
            guard case .v6 = SocketAddress(numericHost: host) else { return nil }
            let rest = text[text.index(after: end)...]
            if rest.isEmpty { return SocketAddress(numericHost: host) }
            guard rest.first == ":" else { return nil }
            return UInt16(decimal: rest.dropFirst()).flatMap { SocketAddress(numericHost: host, port: $0) }
        }
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count == 2 else { return SocketAddress(numericHost: text) }
        return UInt16(decimal: parts[1]).flatMap { SocketAddress(numericHost: parts[0], port: $0) }
    }
}

extension Substring {
    /// Without blanks around it, of those that HTTP has.
    fileprivate var trimmed: Substring {
        let isBlank: (Character) -> Bool = { $0 == " " || $0 == "\t" }
        var text = self.drop(while: isBlank)
        while let last = text.last, isBlank(last) { text.removeLast() }
        return text
    }
}
