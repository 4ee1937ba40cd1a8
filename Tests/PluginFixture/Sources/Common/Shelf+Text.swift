extension Common_Shelf: CustomStringConvertible {
    public var description: String { "row \(self.row)" }
}
