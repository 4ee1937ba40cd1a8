// SPDX-License-Identifier: Apache-2.0
/// The versions of STOMP, by their numbers in `accept-version` and `version`.
public enum STOMPVersion: String, Sendable, CaseIterable {
    // swift-format-ignore: AlwaysUseLowerCamelCase
    case v1_0 = "1.0"
    // swift-format-ignore: AlwaysUseLowerCamelCase
    case v1_1 = "1.1"
    // swift-format-ignore: AlwaysUseLowerCamelCase
    case v1_2 = "1.2"

    /// The name of the version as a subprotocol of WebSocket, such as `v12.stomp`.
    package var webSocketSubprotocol: String {
        switch self {
        case .v1_0: "v10.stomp"
        case .v1_1: "v11.stomp"
        case .v1_2: "v12.stomp"
        }
    }

    /// The version with this name as a subprotocol of WebSocket; nil for any other name.
    package init?(webSocketSubprotocol name: String) {
        guard let version = Self.allCases.first(where: { $0.webSocketSubprotocol == name }) else { return nil }
        self = version
    }

    /// The highest of `versions` that the value of an `accept-version` header names; nil if it names none of them.
    ///
    /// - Parameter value: Versions separated by commas; nil, for a missing header, means only 1.0.
    package static func highest(of versions: some Sequence<STOMPVersion>, accepted value: String?) -> STOMPVersion? {
        let accepted = (value ?? "1.0").split(separator: ",").map { $0.drop { $0 == " " } }
        return versions.filter { accepted.contains(Substring($0.rawValue)) }.max()
    }
}

extension STOMPVersion: Comparable {
    public static func < (one: STOMPVersion, other: STOMPVersion) -> Bool { one.rawValue < other.rawValue }
}

extension STOMPVersion: CustomStringConvertible {
    /// The number, such as `1.2`.
    public var description: String { self.rawValue }
}
