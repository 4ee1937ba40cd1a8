import HHSocket

extension WireFormat {
    /// Requests: AC DC, version 1, length (4 bytes), command (2), sequence number (2).
    static func company() throws -> WireFormat {
        let numbers: [Field] = [.length(), .type(bytes: 2), .serial(bytes: 2)]
        return try WireFormat(
            Layout(
                name: "company",
                request: [.constant([0xAC, 0xDC, 0x01])] + numbers,
                response: [.constant([0xAC, 0xDC, 0x01])] + numbers
            )
        )
    }
}
