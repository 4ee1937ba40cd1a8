// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketFoundation
import NIOCore

// For stores that serialize answers.
extension StoredResponse: Codable {
    private enum CodingKeys: String, CodingKey {
        case type, serial, body, header, metadata, host, port, unixPath, storedAt, owners
    }

    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        let endpoint =
            if let path = try values.decodeIfPresent(String.self, forKey: .unixPath) {
                Endpoint(unixPath: path)
            } else {
                Endpoint(
                    host: try values.decode(String.self, forKey: .host),
                    port: try values.decode(Int.self, forKey: .port)
                )
            }
        self.init(
            SocketResponse(
                type: try values.decode(UInt32.self, forKey: .type),
                serial: try values.decode(UInt32.self, forKey: .serial),
                body: ByteBuffer(bytes: try values.decode(Data.self, forKey: .body)),
                header: try values.decode([String: [UInt8]].self, forKey: .header),
                metadata: try values.decode([String: String].self, forKey: .metadata),
                endpoint: endpoint
            ),
            storedAt: try values.decode(Date.self, forKey: .storedAt),
            owners: try values.decode(Set<String>.self, forKey: .owners)
        )
    }

    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        try values.encode(self.response.type, forKey: .type)
        try values.encode(self.response.serial, forKey: .serial)
        try values.encode(self.response.data, forKey: .body)
        try values.encode(self.response.header, forKey: .header)
        try values.encode(self.response.metadata, forKey: .metadata)
        try values.encode(self.response.endpoint.host, forKey: .host)
        try values.encode(self.response.endpoint.port, forKey: .port)
        try values.encodeIfPresent(self.response.endpoint.unixPath, forKey: .unixPath)
        try values.encode(self.storedAt, forKey: .storedAt)
        try values.encode(self.owners, forKey: .owners)
    }
}
